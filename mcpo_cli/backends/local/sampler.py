"""Sampling: groups of rollouts with their exact log-probabilities and entropies, and nothing computed twice.

Shape suffixes as in `policy.py`. Random numbers are drawn for the whole batch before the first token, so
a response does not depend on which groups are sampled beside it or on when those end.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli.backends.local.policy import Policy

CHUNK = 64
"""Prompts sampled at a time, for each thread: keeps keys and values in the processor's cache."""


@dataclass(frozen=True)
class Rollouts:
    """G responses to each of P prompts, padded to T tokens.

    token_PGT: padded with the end token. length_PG: tokens, the end token included. ended_PG: closed by
    the end token; the others were cut at T. logp_PGT: log-probability of each token under the sampling
    policy at temperature 1, nats. entropy_PGT: entropy of the policy (temperature 1) where the token was
    drawn, nats.
    """

    prompt_PS: Tensor
    token_PGT: Tensor
    length_PG: Tensor
    ended_PG: Tensor
    logp_PGT: Tensor
    entropy_PGT: Tensor

    @property
    def mask_PGT(self) -> Tensor:
        """True for response tokens."""
        return torch.arange(self.token_PGT.shape[-1], device=self.length_PG.device) < self.length_PG[..., None]

    def select(self, index: Tensor) -> "Rollouts":
        """The groups of `index`, in that order."""
        return Rollouts(**{name: value[index] for name, value in vars(self).items()})


def concatenate(parts: list[Rollouts]) -> Rollouts:
    """One batch of all groups of `parts`."""
    return Rollouts(**{name: torch.cat([vars(part)[name] for part in parts]) for name in vars(parts[0])})


@torch.no_grad()
def sample(
    policy: Policy, prompt_PS: Tensor, rollouts: int, max_response: int, temperature: float, eos: int, seed: int
) -> Rollouts:
    """`rollouts` responses of at most `max_response` tokens to each prompt, drawn from stream `seed`."""
    P = prompt_PS.shape[0]
    generator = torch.Generator().manual_seed(seed)
    uniform_TPG = torch.rand(max_response, P, rollouts, generator=generator).to(policy.device)
    chunk = CHUNK * torch.get_num_threads()
    parts = zip(prompt_PS.split(chunk), uniform_TPG.split(chunk, dim=1), strict=True)
    return concatenate([_sample(policy, part_PS, part_TPG, temperature, eos) for part_PS, part_TPG in parts])


def _sample(policy: Policy, prompt_PS: Tensor, uniform_TPG: Tensor, temperature: float, eos: int) -> Rollouts:
    T, P, G = uniform_TPG.shape
    shape = (P, G, T)
    token = prompt_PS.new_full(shape, eos)
    length_PG = prompt_PS.new_full((P, G), T)
    ended_PG = torch.zeros(P, G, dtype=torch.bool, device=prompt_PS.device)

    first_PV, prompts = policy.prompt(prompt_PS)
    logits_PGV = first_PV[:, None].expand(P, G, -1)
    logp, entropy = first_PV.new_zeros(shape), first_PV.new_zeros(shape)
    room = (P, policy.heads, G, T, policy.head_dim)
    past = [(k.new_empty(room), v.new_empty(room)) for k, v in prompts]
    active_A = torch.arange(P, device=prompt_PS.device)
    for t in range(T):
        logp_AGV = logits_PGV.log_softmax(-1)
        token_AG = draw(logits_PGV if temperature != 1 else logp_AGV, temperature, uniform_TPG[t, active_A])
        live_AG = ~ended_PG[active_A]
        token[active_A, :, t] = token_AG.where(live_AG, eos)
        logp[active_A, :, t] = logp_AGV.gather(-1, token_AG[..., None]).squeeze(-1) * live_AG
        entropy[active_A, :, t] = -(logp_AGV.exp() * logp_AGV).sum(-1) * live_AG
        stops_AG = live_AG & (token_AG == eos)
        length_PG[active_A] = length_PG[active_A].where(~stops_AG, t + 1)
        ended_PG[active_A] |= stops_AG
        if t == T - 1:
            break
        keep = ~ended_PG[active_A].all(-1)
        if not keep.any():
            break
        if not keep.all():
            # A group whose rollouts have all ended costs nothing any more.
            active_A, token_AG = active_A[keep], token_AG[keep]
            prompts = [(k[keep], v[keep]) for k, v in prompts]
            past = [(k[keep], v[keep]) for k, v in past]
        logits_PGV = policy.decode(token_AG, prompt_PS.shape[1] + t, prompts, past, t)
    return Rollouts(prompt_PS, token, length_PG, ended_PG, logp, entropy)


def draw(logits_V: Tensor, temperature: float, uniform: Tensor) -> Tensor:
    """The token at quantile `uniform` of softmax(logits / temperature), over the last axis."""
    cumulative_V = (logits_V / temperature).softmax(-1).cumsum(-1)
    # Rounding may leave the last entry below the quantile.
    return (cumulative_V < uniform[..., None] * cumulative_V[..., -1:]).sum(-1)
