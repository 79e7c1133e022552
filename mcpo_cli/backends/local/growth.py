"""Trees of rollouts that grow by a token at a time, for sampling; see `policy.py`, whose shape suffixes these are."""

import torch
from torch import Tensor

from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.policy import KeysValues, Policy, attention


class Growth:
    """Trees that grow by a level of rows at a time, with the keys and values that later rows read.

    A group is a sequence. Its rows have slots in the order in which they come, after those of its prompt.
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
        """Slots that are taken; and the position of the rows to come next."""
        self.seen_NL = torch.arange(S, device=prompt_PS.device) < self.filled_B[:, None]

    def extend(self, parent_N: Tensor, token_N: Tensor) -> None:
        """The next level: a row for each token of `token_N`, after the row `parent_N` of the level before."""
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

    def _drop_ended(self, sequence_N: Tensor) -> Tensor:
        """`sequence_N` numbered without the groups that have no row in it, once these are a quarter of all.

        They would cost attention; to drop them costs a copy of the keys and values.
        """
        goes_on_B = sequence_N.bincount(minlength=len(self.filled_B)) > 0
        if int(goes_on_B.sum()) > 0.75 * len(goes_on_B):
            return sequence_N
        self.cache = [(k_BLHD[goes_on_B], v_BLHD[goes_on_B]) for k_BLHD, v_BLHD in self.cache]
        self.filled_B = self.filled_B[goes_on_B]
        return (goes_on_B.cumsum(0) - 1)[sequence_N]


def widen(x: Tensor, length: int) -> Tensor:
    """With room for `length` entries on axis 1, zeros at first; twice the room or more, so that copies are rare."""
    room = x.shape[1]
    if room >= length:
        return x
    return torch.cat([x, x.new_zeros(len(x), max(room, length - room), *x.shape[2:])], dim=1)
