"""Sampling: groups of rollouts with their exact log-probabilities and entropies, without repeated computation.

Shape suffixes as in `policy.py`. Random numbers are drawn for the whole batch before the first token, so
a response does not depend on which other groups are sampled with it or on when these groups end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from mcpo_cli.backends import corrections
from mcpo_cli.backends.checks import NotFinite
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.policy import KeysValues, Policy, attention
from mcpo_cli.backends.local.tokenizer import Stops
from mcpo_cli.backends.local.tree import branch
from mcpo_cli.config.cost import CACHE_BYTES

CHUNK = 128
"""Maximum prompts sampled at a time per thread: enough rows for matrix products, few enough for the CPU's cache."""
LONG = 64
"""Position of a row from which on attention takes much of the time."""
BLOCK = 128
"""Tokens of the vocabulary whose probabilities are summed sequentially."""
Draw = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From logits_NV, row_M, uniform_M to each rollout's token at its quantile, its log-probability, and the entropy, M.

row_M: the row of logits_NV that each rollout has reached.
"""


@dataclass(frozen=True)
class Rollouts:
    """G responses to each of P prompts, padded to T tokens. A prompt may have fewer: then its last places are empty.

    prompt_PS: filled up with `trees.NO_TOKEN`. token_PGT: padded with the end token. length_PG: tokens, including the
    last one, which is the end token or completes a stop string; 0 for an empty place. ended_PG: True if the response
    ended so; the others were truncated at T.
    logp_PGT: log-probability of each token under the sampling policy at temperature 1, nats. entropy_PGT: entropy of
    the policy (temperature 1) where the token was drawn, nats.
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

    @property
    def drawn_PG(self) -> Tensor:
        """False in the empty places of prompts with fewer rollouts than others."""
        return self.length_PG > 0

    def select(self, index: Tensor) -> "Rollouts":
        """The groups of `index`, in that order."""
        return Rollouts(**{name: value[index] for name, value in vars(self).items()})


def concatenate(parts: list[Rollouts]) -> Rollouts:
    """One batch of all groups of `parts`."""
    tensors = {name: torch.cat([vars(part)[name] for part in parts]) for name in vars(parts[0]) if name != "prompt_PS"}
    return Rollouts(prompt_PS=trees.stack([part.prompt_PS for part in parts]), **tensors)


@torch.no_grad()
def sample(
    policy: Policy,
    prompt_PS: Tensor,
    rollouts: int,
    max_response: int,
    temperature: float,
    eos: int,
    seed: int,
    stops: Stops | None = None,
    rounding: float = 0.0,
    count_P: Tensor | None = None,
) -> Rollouts:
    """`rollouts` responses of at most `max_response` tokens to each prompt, drawn from stream `seed`.

    eos: the token that ends a response; it also pads `token_PGT`. stops: other ends. rounding: the step to which
    logits are rounded; 0 leaves them alone. count_P: responses to each prompt, at most `rollouts`.

    Raises:
        NotFinite: the log-probability of a token is NaN or infinite, as the policy's logits are.
    """
    generator = torch.Generator().manual_seed(seed)
    uniform_TPG = torch.rand(max_response, len(prompt_PS), rollouts, generator=generator).to(policy.device)
    draw = partial(_with_log_probs, temperature, rounding)
    return drawn_by(draw, policy, prompt_PS, uniform_TPG, eos, stops, count_P=count_P)


@torch.no_grad()
def drawn_by(
    draw: Draw,
    policy: Policy,
    prompt_PS: Tensor,
    uniform_TPG: Tensor,
    eos: int,
    stops: Stops | None = None,
    limit_P: Tensor | None = None,
    count_P: Tensor | None = None,
) -> Rollouts:
    """Responses whose tokens `draw` chooses at the quantiles `uniform_TPG`; see `sample`.

    limit_P: maximum tokens of each prompt's responses. count_P: the number of its responses, G at most.
    """
    T, _, G = uniform_TPG.shape
    capacity = CACHE_BYTES // (policy.bytes_in_cache * (prompt_PS.shape[1] + G * T))
    chunk = min(CHUNK * torch.get_num_threads(), max(1, capacity))
    limit_P = prompt_PS.new_full((len(prompt_PS),), T) if limit_P is None else limit_P
    count_P = prompt_PS.new_full((len(prompt_PS),), G) if count_P is None else count_P
    return concatenate(
        [
            _sample(draw, policy, prompt_PS[part], uniform_TPG[:, part], limit_P[part], count_P[part], eos, stops)
            for first in range(0, len(prompt_PS), chunk)
            for part in [slice(first, first + chunk)]
        ]
    )


def _sample(
    draw: Draw,
    policy: Policy,
    prompt_PS: Tensor,
    uniform_TPG: Tensor,
    limit_P: Tensor,
    count_P: Tensor,
    eos: int,
    stops: Stops | None,
) -> Rollouts:
    T, P, G = uniform_TPG.shape
    uniform_TB = uniform_TPG.flatten(1)
    token_BT = prompt_PS.new_full((P * G, T), eos)
    drawn_B = (torch.arange(G, device=prompt_PS.device) < count_P[:, None]).flatten()
    length_B = T * drawn_B
    ended_B = torch.zeros_like(length_B, dtype=torch.bool)
    growth = Growth(policy, prompt_PS)
    logp_BT, entropy_BT = (torch.zeros(P * G, T, dtype=policy.weights_dtype, device=policy.device) for _ in range(2))
    # The rollouts that continue, and the row that each has reached.
    live_M = drawn_B.nonzero().squeeze(-1)
    row_M = live_M // G
    limit_B, shortest = limit_P.repeat_interleave(G), int(limit_P.min())
    for t in range(T):
        token_M, logp_M, entropy_M = _next_tokens(draw, policy, growth.x_NE, row_M, uniform_TB[t, live_M])
        token_BT[live_M, t], logp_BT[live_M, t], entropy_BT[live_M, t] = token_M, logp_M, entropy_M
        ends_M = token_M == eos
        if stops:
            ends_M |= stops.reached(token_BT[live_M, : t + 1])
        ended_B[live_M[ends_M]] = True
        if t + 1 >= shortest:
            ends_M |= limit_B[live_M] == t + 1
        length_B[live_M[ends_M]] = t + 1
        live_M, row_M, token_M = live_M[~ends_M], row_M[~ends_M], token_M[~ends_M]
        if t == T - 1 or not len(live_M):
            break
        parent_N, token_N, row_M = branch(row_M, token_M, policy.vocabulary)
        growth.extend(parent_N, token_N)
    if not logp_BT.isfinite().all():
        raise NotFinite("the log-probabilities of the policy are NaN or infinite")
    token, logp, entropy = (x.view(P, G, T) for x in (token_BT, logp_BT, entropy_BT))
    return Rollouts(prompt_PS, token, length_B.view(P, G), ended_B.view(P, G), logp, entropy)


def _next_tokens(
    draw: Draw, policy: Policy, x_NE: Tensor, row_M: Tensor, uniform_M: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`draw`, on the logits of `x_NE`, which are computed in pieces."""
    size = policy.rows_at_once
    if len(x_NE) > size:
        totals = [torch.zeros_like(row_M), *(uniform_M.new_zeros(len(row_M), dtype=x_NE.dtype) for _ in range(2))]
        for first, piece_NE in zip(range(0, len(x_NE), size), x_NE.split(size), strict=True):
            index = ((row_M >= first) & (row_M < first + size)).nonzero().squeeze(-1)
            part = _next_tokens(draw, policy, piece_NE, row_M[index] - first, uniform_M[index])
            for total, values in zip(totals, part, strict=True):
                total[index] = values
        token_M, logp_M, entropy_M = totals
        return token_M, logp_M, entropy_M
    return draw(policy.logits(x_NE), row_M, uniform_M)


def _with_log_probs(
    temperature: float, rounding: float, logits_NV: Tensor, row_M: Tensor, uniform_M: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See `Draw`; log-probability and entropy are at temperature 1, of logits rounded to multiples of `rounding`."""
    logits_NV = corrections.rounded(logits_NV, rounding)
    logp_NV = logits_NV.log_softmax(-1)
    entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
    probability_NV = (logp_NV if temperature == 1 else logits_NV / temperature).softmax(-1)
    token_M = at_quantile(probability_NV, uniform_M, row_M)
    return token_M, logp_NV[row_M, token_M], entropy_N[row_M]


def draw(logits_MV: Tensor, temperature: float, uniform_M: Tensor) -> Tensor:
    """token_M at the quantiles `uniform_M` of softmax(logits / temperature)."""
    row_M = torch.arange(len(logits_MV), device=logits_MV.device)
    return at_quantile((logits_MV / temperature).softmax(-1), uniform_M, row_M)


def at_quantile(probability_NV: Tensor, uniform_M: Tensor, row_M: Tensor) -> Tensor:
    """token_M at quantile `uniform_M` of the distribution in row `row_M` of `probability_NV`.

    A sum over a large vocabulary would lose small probabilities to rounding, so blocks of it are added up first.
    """
    N, V = probability_NV.shape
    probability_NCB = functional.pad(probability_NV, (0, -V % min(V, BLOCK))).view(N, -1, min(V, BLOCK))
    if probability_NCB.shape[1] == 1:
        cumulative_MV = probability_NV.cumsum(-1)[row_M]
        # Rounding may leave the last entry below the quantile.
        return (cumulative_MV < uniform_M[:, None] * cumulative_MV[:, -1:]).sum(-1)
    cumulative_MC = probability_NCB.sum(-1).cumsum(-1)[row_M]
    target_M = uniform_M * cumulative_MC[:, -1]
    block_M = (cumulative_MC < target_M[:, None]).sum(-1)
    before_M = functional.pad(cumulative_MC, (1, 0)).gather(1, block_M[:, None]).squeeze(1)
    cumulative_MB = probability_NCB[row_M, block_M].cumsum(-1)
    # Rounding may leave a block's last entry below the remainder: then its last token with a probability is drawn.
    remainder_M = torch.minimum(target_M - before_M, cumulative_MB[:, -1])
    return block_M * BLOCK + (cumulative_MB < remainder_M[:, None]).sum(-1)


class Growth:
    """Trees that grow by one level of rows at a time, with the keys and values that later rows read.

    A group is a sequence, until its rows share little. Its rows have slots in the order in which they are added, after
    the rows of its prompt.
    """

    def __init__(self, policy: Policy, prompt_PS: Tensor) -> None:
        P, S = prompt_PS.shape
        self.policy, self.layers = policy, policy.layers()
        self.cache: KeysValues = []
        no_token_P11 = prompt_PS.new_zeros(P, 1, 1)
        trunks = trees.grow(prompt_PS, no_token_P11, no_token_P11.bool(), policy.vocabulary, policy.row_cost)
        self.x_NE = policy.hidden_states(trunks, self.layers, self.cache)
        """Hidden states of the newest level's rows; at first of the prompts' last tokens."""
        self.sequence_N = torch.arange(P, device=prompt_PS.device)
        self.filled_B = self.position_N = trees.lengths(prompt_PS)
        """Number of used slots; and the position of the next rows."""
        self.seen_NL = torch.arange(S, device=prompt_PS.device) < self.filled_B[:, None]

    def extend(self, parent_N: Tensor, token_N: Tensor) -> None:
        """The next level: a row for each token of `token_N`, after the row `parent_N` of the level before."""
        self._separate()
        position_N = self.position_N[parent_N]
        sequence_N = self._drop_ended(self.sequence_N[parent_N])
        B = len(self.filled_B)
        rank_N = trees.ranks(sequence_N, B)
        slot_N = self.filled_B[sequence_N] + rank_N
        self.filled_B = self.filled_B + sequence_N.bincount(minlength=B)
        L, W = int(self.filled_B.max()), int(rank_N.max()) + 1
        seen_NL = widen(self.seen_NL[parent_N], L)
        seen_NL.scatter_(1, slot_N[:, None], True)
        self.sequence_N, self.seen_NL, self.position_N = sequence_N, seen_NL, position_N + 1
        seen_BWL = seen_NL.new_ones(B, W, L)
        seen_BWL[sequence_N, rank_N] = seen_NL[:, :L]
        unseen_BWL = self.policy.unseen(seen_BWL)

        def attend(layer: int, q_NHD: Tensor, k_NHD: Tensor, v_NHD: Tensor) -> Tensor:
            k_BLHD, v_BLHD = self.cache[layer] = (widen(self.cache[layer][0], L), widen(self.cache[layer][1], L))
            k_BLHD[sequence_N, slot_N], v_BLHD[sequence_N, slot_N] = k_NHD, v_NHD
            q_BWHD = q_NHD.new_zeros(B, W, *q_NHD.shape[1:])
            q_BWHD[sequence_N, rank_N] = q_NHD
            return attention(q_BWHD, k_BLHD[:, :L], v_BLHD[:, :L], unseen_BWL)[sequence_N, rank_N]

        self.x_NE = self.policy.forward(self.layers, token_N, position_N, attend)

    def _separate(self) -> None:
        """Each row gets a sequence of its own, with a copy of what it sees, once the rows of a group share little.

        In attention, a row costs all slots of its sequence, also slots that the row does not see.
        """
        N, B, longest = len(self.sequence_N), len(self.filled_B), int(self.position_N.max())
        if longest < LONG or N == B or 2 * N * longest > 3 * B * int(self.filled_B.max()):
            return
        slot_NL = self.seen_NL.int().argsort(dim=1, descending=True, stable=True)[:, :longest]
        for layer, (k_BLHD, v_BLHD) in enumerate(self.cache):
            self.cache[layer] = k_BLHD[self.sequence_N[:, None], slot_NL], v_BLHD[self.sequence_N[:, None], slot_NL]
        self.sequence_N, self.filled_B = torch.arange(N, device=slot_NL.device), self.position_N
        self.seen_NL = torch.arange(longest, device=slot_NL.device) < self.position_N[:, None]

    def _drop_ended(self, sequence_N: Tensor) -> Tensor:
        """`sequence_N` numbered without the sequences that have no row in it, once these are a quarter of all.

        Sequences without a row would cost attention; dropping them costs a copy of the keys and values.
        """
        goes_on_B = sequence_N.bincount(minlength=len(self.filled_B)) > 0
        if int(goes_on_B.sum()) > 0.75 * len(goes_on_B):
            return sequence_N
        self.cache = [(k_BLHD[goes_on_B], v_BLHD[goes_on_B]) for k_BLHD, v_BLHD in self.cache]
        self.filled_B = self.filled_B[goes_on_B]
        return (goes_on_B.cumsum(0) - 1)[sequence_N]


def widen(x: Tensor, length: int) -> Tensor:
    """`x` with room for `length` entries on axis 1, zeros at first; it grows by at least a quarter: copies are rare."""
    room = x.shape[1]
    if room >= length:
        return x
    return torch.cat([x, x.new_zeros(len(x), max(room // 4, length - room), *x.shape[2:])], dim=1)
