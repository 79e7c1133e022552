"""Which sequences of a batch pass through verl's update, and on which rank."""

from collections.abc import Sequence


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
