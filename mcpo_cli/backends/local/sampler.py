"""Sampling: groups of rollouts with their exact log-probabilities and entropies, and nothing computed twice.

Shape suffixes as in `policy.py`. Random numbers are drawn for the whole batch before the first token, so
a response does not depend on which groups are sampled beside it or on when those end.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli.backends.local.policy import Growth, Policy
from mcpo_cli.backends.local.tree import branch

CHUNK = 128
"""Prompts sampled at a time, for each thread: rows enough for matrix products, few enough for the processor's cache."""


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
    uniform_TPG = quantiles(seed, len(prompt_PS), rollouts, max_response).to(policy.device)
    chunk = CHUNK * torch.get_num_threads()
    parts = zip(prompt_PS.split(chunk), uniform_TPG.split(chunk, dim=1), strict=True)
    return concatenate([_sample(policy, part_PS, part_TPG, temperature, eos) for part_PS, part_TPG in parts])


def _sample(policy: Policy, prompt_PS: Tensor, uniform_TPG: Tensor, temperature: float, eos: int) -> Rollouts:
    T, P, G = uniform_TPG.shape
    uniform_TB = uniform_TPG.flatten(1)
    token_BT = prompt_PS.new_full((P * G, T), eos)
    length_B = prompt_PS.new_full((P * G,), T)
    growth = Growth(policy, prompt_PS)
    logp_BT, entropy_BT = (growth.logits_NV.new_zeros(P * G, T) for _ in range(2))
    # The rollouts that go on, and the row that each has come to.
    live_M = torch.arange(P * G, device=prompt_PS.device)
    row_M = live_M // G
    for t in range(T):
        logp_NV = growth.logits_NV.log_softmax(-1)
        entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
        cumulative_NV = cumulative(growth.logits_NV if temperature != 1 else logp_NV, temperature)
        token_M = at_quantile(cumulative_NV[row_M], uniform_TB[t, live_M])
        token_BT[live_M, t] = token_M
        logp_BT[live_M, t] = logp_NV[row_M, token_M]
        entropy_BT[live_M, t] = entropy_N[row_M]
        length_B[live_M[token_M == eos]] = t + 1
        goes_on = token_M != eos
        live_M, row_M, token_M = live_M[goes_on], row_M[goes_on], token_M[goes_on]
        if t == T - 1 or not len(live_M):
            break
        parent_N, token_N, row_M = branch(row_M, token_M, policy.vocabulary)
        growth.extend(parent_N, token_N)
    ended_B = torch.ones_like(length_B, dtype=torch.bool)
    ended_B[live_M] = False
    token, logp, entropy = (x.view(P, G, T) for x in (token_BT, logp_BT, entropy_BT))
    return Rollouts(prompt_PS, token, length_B.view(P, G), ended_B.view(P, G), logp, entropy)


def quantiles(seed: int, prompts: int, rollouts: int, max_response: int) -> Tensor:
    """uniform_TPG: the quantile at which each token is drawn, from stream `seed`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(max_response, prompts, rollouts, generator=generator)


def draw(logits_V: Tensor, temperature: float, uniform: Tensor) -> Tensor:
    """The token at quantile `uniform` of softmax(logits / temperature), over the last axis."""
    return at_quantile(cumulative(logits_V, temperature), uniform)


def cumulative(logits_V: Tensor, temperature: float) -> Tensor:
    """The distribution function of softmax(logits / temperature), over the last axis."""
    return (logits_V / temperature).softmax(-1).cumsum(-1)


def at_quantile(cumulative_V: Tensor, uniform: Tensor) -> Tensor:
    """The token at quantile `uniform` of a distribution function."""
    # Rounding may leave the last entry below the quantile.
    return (cumulative_V < uniform[..., None] * cumulative_V[..., -1:]).sum(-1)
