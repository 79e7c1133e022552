"""Which sequences of a batch pass through verl's engine, and on which rank.

A sequence is its position in the batch, which has the order of the stream: prompts' random ids decide nothing here.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

MEASURED = 8
"""Of this many sequences of a kind that bear no gradient, the entropy of one is measured."""


def shared(parts: Sequence[Sequence[int]], tokens: Sequence[int], ranks: int) -> list[int]:
    """The sequences of all mini-batches, rank after rank, and within a rank in the order of the mini-batches.

    Ranks get equally many sequences of each mini-batch, and similar work: attention costs the square of a length.
    parts: each mini-batch's sequences; tokens: the length of every sequence.
    """
    import torch
    from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

    work = calculate_workload(torch.tensor(tokens)).tolist()
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for part in parts:
        balanced = get_seqlen_balanced_partitions([work[i] for i in part], k_partitions=ranks, equal_size=True)
        for share, chosen in zip(shares, balanced, strict=True):
            share += [part[i] for i in chosen]
    return [i for share in shares for i in share]


def passing(part: Sequence[int], bears: Sequence[bool], tokens: Sequence[int], ranks: int) -> list[int]:
    """The sequences of the mini-batch `part` that pass through its update: those that bear a gradient.

    The shortest others come along, as their gradient is zero, where ranks would get unequally many or none.
    """
    chosen = [i for i in part if bears[i]]
    others = sorted((i for i in part if not bears[i]), key=lambda i: tokens[i])
    missing = max(-len(chosen) % ranks, ranks - len(chosen))
    return sorted(chosen + others[:missing])


def measured(bears: Sequence[bool], kinds: Sequence[Hashable]) -> list[bool]:
    """Whose entropy is measured: all that bear a gradient, and of each kind the first of every `MEASURED` others."""
    chosen, seen = list(bears), Counter[Hashable]()
    for i, kind in enumerate(kinds):
        if not bears[i]:
            chosen[i] = seen[kind] % MEASURED == 0
            seen[kind] += 1
    return chosen


def packs(
    part: Sequence[int], bears: Sequence[bool], measured: Sequence[bool], tokens: Sequence[int], ranks: int
) -> list[list[int]]:
    """The sequences of the mini-batch `part` whose log-probabilities are computed, those of one pass together.

    First those that pass through its update; then those that are measured, and as many more as ranks need.
    """
    together = passing(part, bears, tokens, ranks)
    rest = [i for i in part if i not in {*together}]
    chosen = [i for i in rest if measured[i]]
    chosen += [i for i in rest if not measured[i]][: -len(chosen) % ranks]
    return [pack for pack in (together, sorted(chosen)) if pack]
