"""Distinct beginnings: the parts that the rollouts of a prompt share, each of which is computed once.

A beginning is the prompt and the response tokens so far. Rollouts of one prompt mostly begin alike, and a causal
model's output at a token depends only on the beginning that ends there. So each distinct beginning is one row,
and a group of rollouts is a tree of rows whose trunk is the prompt:

    rollouts of `3 + 5 =`        rows: 4 of the prompt, and 8 for the 14 tokens that are read
    8 = 2 = 4 <eos>              3 - + - 5 - = -+- 8 - = -+- 2 - = -+- 4
    8 = 2 = 7 <eos>                             |         |         `- 7
    8 = 5 <eos>                                 |         `- 5
    1 <eos>                                     `- 1

A row sees only the rows on its way back to the root. The last token of a rollout has no row, because it predicts no
further token. First tokens that all prompts have in common, such as a system turn or worked examples, have one row for
all prompts.

Prompts may differ in length: `prompt_PS` is filled up with NO_TOKEN. Shape suffixes as in `policy.py`; also M = P * G
rollouts, K tokens that are read (all tokens of rollouts but the last), C tokens that all prompts begin with, B
sequences of at most L rows: a group, or a part of one, with its prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

NO_TOKEN = -1
"""Fills up `prompt_PS` after the last token of a shorter prompt."""
WORTH_SHARING = 8
"""Least number of first tokens for which prompts share rows."""


def lengths(prompt_PS: Tensor) -> Tensor:
    """Tokens of each prompt."""
    return (prompt_PS != NO_TOKEN).sum(-1)


def stack(prompts: Sequence[Tensor]) -> Tensor:
    """prompt_PS of batches of prompts, filled up to the longest of all."""
    longest = max(prompt_PS.shape[1] for prompt_PS in prompts)
    return torch.cat([functional.pad(part, (0, longest - part.shape[1]), value=NO_TOKEN) for part in prompts])


def branch(row_M: Tensor, token_M: Tensor, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows that M rollouts reach from rows `row_M` with one more token each.

    Returns parent_N and token_N of the new rows, in that order, and the new row_M.
    """
    beginning_N, row_M = torch.unique(row_M * vocabulary + token_M, return_inverse=True)
    return beginning_N // vocabulary, beginning_N % vocabulary, row_M


@dataclass(frozen=True)
class Tree:
    """The rows of groups of rollouts, and the position of each in the sequences that attention works on.

    The prompts' rows come first: the tokens that all prompts share, then position by position the other tokens without
    a prediction, then the last token of each prompt. The distinct beginnings follow, by sequence.
    """

    token_N: Tensor
    """The token that each row reads."""
    position_N: Tensor
    """Its position, counted from the start of the prompt."""
    sequence_N: Tensor
    """The sequence that has the row; the first sequence of a group has the prompt's rows."""
    slot_N: Tensor
    """The row's position in that sequence."""
    row_BL: Tensor
    """The rows of each sequence: its prompt, then its distinct beginnings; padded with rows that no row sees."""
    seen_BLL: Tensor
    """True if a row (second axis) sees another one (last axis) of its sequence."""
    predictor_PGT: Tensor
    """The row that predicts each token of the responses, counted from the prompts' last rows; any outside the mask."""
    shortest: int
    """Tokens of the shortest prompt: slots before its last one hold rows without a prediction."""
    silent: int
    """The number of rows without a prediction: the first rows, of all prompt tokens except the last ones."""


@dataclass(frozen=True)
class Trunks:
    """The rows of P prompts: `token_N`, `position_N` and the prompt `prompt_N` of each, in the order of `Tree`."""

    token_N: Tensor
    position_N: Tensor
    prompt_N: Tensor
    row_PS: Tensor
    """The row of each token; after a prompt's end, the row of its last token."""

    @staticmethod
    def of(prompt_PS: Tensor) -> "Trunks":
        """Rows of the prompts; the first tokens that all share have one row each, the first prompt's."""
        (P, S), device = prompt_PS.shape, prompt_PS.device
        length_P, C = lengths(prompt_PS), _shared(prompt_PS)
        position_S = torch.arange(S, device=device)
        inner_SP = (position_S[:, None] >= C) & (position_S[:, None] < length_P - 1)
        position_I, prompt_I = inner_SP.nonzero(as_tuple=True)
        silent = C + len(position_I)
        row_PS = (silent + torch.arange(P, device=device))[:, None].repeat(1, S)
        row_PS[:, :C] = position_S[:C]
        row_PS[prompt_I, position_I] = C + torch.arange(len(position_I), device=device)
        position_N = torch.cat([position_S[:C], position_I, length_P - 1])
        prompt_N = torch.cat([position_S.new_zeros(C), prompt_I, torch.arange(P, device=device)])
        return Trunks(prompt_PS[prompt_N, position_N], position_N, prompt_N, row_PS)


def grow(prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor, vocabulary: int, row_cost: int) -> Tree:
    """The tree of each group of rollouts; `_parts` decides when groups are cut into parts.

    mask_PGT: the tokens of each response, which come first. row_cost: pairs of rows in an attention that cost as much
    as the other work for a row.
    """
    (P, S), (_, G, T), device = prompt_PS.shape, token_PGT.shape, prompt_PS.device
    M, trunks, length_P = P * G, Trunks.of(prompt_PS), lengths(prompt_PS)
    token_MT, read_MT = token_PGT.reshape(M, T)[:, :-1], mask_PGT.reshape(M, T)[:, 1:]
    rollout_K, level_K = read_MT.nonzero(as_tuple=True)
    beginning_K = _beginnings(token_MT, G, vocabulary)[read_MT]
    parts_P = _parts(beginning_K, rollout_K, length_P, G, row_cost)
    first_P, B = parts_P.cumsum(0) - parts_P, int(parts_P.sum())
    sequence_PG = first_P[:, None] + torch.arange(G, device=device) * parts_P[:, None] // G
    sequence_K = sequence_PG.flatten()[rollout_K]

    _, row_K = torch.unique(sequence_K * (T * M) + beginning_K, return_inverse=True)
    N = int(row_K.max()) + 1 if len(row_K) else 0
    # Any rollout that reads a row determines its token and level.
    reader_N = row_K.new_zeros(N).scatter_(0, row_K, torch.arange(len(row_K), device=device))
    rollout_N, level_N, sequence_N = rollout_K[reader_N], level_K[reader_N], sequence_K[reader_N]
    group_B = torch.arange(P, device=device).repeat_interleave(parts_P)
    length_B = length_P[group_B]
    slot_N = length_B[sequence_N] + ranks(sequence_N, B)
    L = max(S, int(slot_N.max()) + 1) if N else S

    row_BL = trunks.row_PS[group_B, -1][:, None].repeat(1, L)
    row_BL[:, :S] = trunks.row_PS[group_B]
    row_BL[sequence_N, slot_N] = len(trunks.token_N) + torch.arange(N, device=device)

    in_prompt_BL = torch.arange(L, device=device) < length_B[:, None]
    seen_BLL = torch.ones(L, L, dtype=torch.bool, device=device).tril() & in_prompt_BL[:, None]
    # The way from each row back to the prompt. Beyond the row it stays at slot 0, the prompt's first.
    slot_MT = row_K.new_zeros(M, T - 1)
    slot_MT[read_MT] = slot_N[row_K]
    way_NT = slot_MT[rollout_N] * (torch.arange(T - 1, device=device) <= level_N[:, None])
    seen_BLL[sequence_N[:, None], slot_N[:, None], way_NT] = True

    predictor_MT = (torch.arange(M, device=device) // G)[:, None].repeat(1, T)
    predictor_MT[:, 1:][read_MT] = P + row_K
    return Tree(
        token_N=torch.cat([trunks.token_N, token_MT[rollout_N, level_N]]),
        position_N=torch.cat([trunks.position_N, length_B[sequence_N] + level_N]),
        sequence_N=torch.cat([first_P[trunks.prompt_N], sequence_N]),
        slot_N=torch.cat([trunks.position_N, slot_N]),
        row_BL=row_BL,
        seen_BLL=seen_BLL,
        predictor_PGT=predictor_MT.view(P, G, T),
        shortest=int(length_P.min()),
        silent=len(trunks.token_N) - P,
    )


def _shared(prompt_PS: Tensor) -> int:
    """C: the number of first tokens that all prompts share, never the last one of a prompt; 0 if they are too few."""
    shortest = int(lengths(prompt_PS).min())
    same_S = (prompt_PS == prompt_PS[:1]).all(0)[: shortest - 1]
    count = int(same_S.cumprod(0).sum())
    return count if count >= WORTH_SHARING and len(prompt_PS) > 1 else 0


def ranks(sequence_N: Tensor, sequences: int) -> Tensor:
    """The number of each row within its sequence, from 0; rows of a sequence are adjacent."""
    count_B = sequence_N.bincount(minlength=sequences)
    return torch.arange(len(sequence_N), device=sequence_N.device) - (count_B.cumsum(0) - count_B)[sequence_N]


def _beginnings(token_MT: Tensor, rollouts: int, vocabulary: int) -> Tensor:
    """beginning_MT: equal numbers where rollouts of a group have the same tokens so far, rising from level to level."""
    M, beginning_MT = len(token_MT), torch.empty_like(token_MT)
    row_M = torch.arange(M, device=token_MT.device) // rollouts
    for level, token_M in enumerate(token_MT.T):
        _, _, row_M = branch(row_M, token_M, vocabulary)
        beginning_MT[:, level] = level * M + row_M
    return beginning_MT


def _parts(beginning_K: Tensor, rollout_K: Tensor, length_P: Tensor, rollouts: int, row_cost: int) -> Tensor:
    """parts_P: into how many equal parts each group is cut, the number that costs least.

    A part has separate rows, so the beginnings that its rollouts share with other parts are computed again. But
    attention over a sequence of L rows costs L * L pairs, however few of them see each other, so rollouts that share
    little are better separated.
    """
    P, G = len(length_P), rollouts
    _, row_K = torch.unique(beginning_K, return_inverse=True)
    reads_NG = row_K.new_zeros(int(row_K.max()) + 1 if len(row_K) else 0, G, dtype=torch.bool)
    reads_NG[row_K, rollout_K % G] = True
    group_N = row_K.new_zeros(len(reads_NG)).scatter_(0, row_K, rollout_K // G)

    def cost_P(parts: int) -> Tensor:
        rows_NC = reads_NG.view(-1, parts, G // parts).any(-1).float()
        rows_PC = rows_NC.new_zeros(P, parts).index_add_(0, group_N, rows_NC)
        cost: Tensor = (rows_PC * row_cost + (length_P[:, None] + rows_PC).square()).sum(-1)
        return cost

    choices = [parts for parts in range(1, G + 1) if G % parts == 0]
    cheapest_P = torch.stack([cost_P(parts) for parts in choices]).argmin(0)
    return torch.tensor(choices, device=row_K.device)[cheapest_P]
