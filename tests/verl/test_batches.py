"""How verl's ranks share the sequences of an update."""

import pytest

pytestmark = pytest.mark.verl


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_get_equally_many_sequences_of_each_mini_batch(ranks: int) -> None:
    from mcpo_cli.backends.verl import batches

    tokens = [7, 1, 9, 3, 3, 8, 2, 6, 5, 5, 1, 4]
    parts = [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11]]
    order = batches.shared(parts, tokens, ranks)
    assert sorted(order) == list(range(12))
    shares = [order[rank * 12 // ranks : (rank + 1) * 12 // ranks] for rank in range(ranks)]
    for share in shares:
        assert sum(i < 8 for i in share) == 8 // ranks
        assert [i < 8 for i in share] == sorted((i < 8 for i in share), reverse=True)


def test_ranks_get_similar_work() -> None:
    """Not similar numbers of tokens: attention costs their square."""
    import torch
    from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

    from mcpo_cli.backends.verl import batches

    tokens = [2000, 1000, 16000, 6000, 6000, 8000, 1000, 12000]
    work = calculate_workload(torch.tensor(tokens)).tolist()

    def heaviest(shares: list[list[int]]) -> float:
        return max(sum(work[i] for i in share) for share in shares)

    order = batches.shared([list(range(8))], tokens, 2)
    by_tokens = get_seqlen_balanced_partitions(tokens, k_partitions=2, equal_size=True)
    assert heaviest([order[:4], order[4:]]) < 0.93 * heaviest(by_tokens)
