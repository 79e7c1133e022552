"""How verl's ranks share the sequences of a pass."""

import pytest
import torch

pytestmark = pytest.mark.verl


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_get_equally_many_sequences(ranks: int) -> None:
    from mcpo_cli.backends.verl.batch import balance_ranks

    tokens = [7, 1, 9, 3, 3, 8, 2, 6, 5, 5, 1, 4]
    chosen = [0, 2, 3, 5, 7, 8, 10, 11]
    order = balance_ranks(chosen, tokens, ranks)
    assert sorted(order) == chosen
    size = len(chosen) // ranks
    assert all(share == sorted(share) for share in (order[i : i + size] for i in range(0, len(chosen), size)))
    assert balance_ranks([], tokens, ranks) == []


def test_ranks_get_similar_work() -> None:
    """Not similar numbers of tokens: attention costs their square."""
    from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

    from mcpo_cli.backends.verl.batch import balance_ranks

    tokens = [2000, 1000, 16000, 6000, 6000, 8000, 1000, 12000]
    work = calculate_workload(torch.tensor(tokens)).tolist()

    def heaviest(shares: list[list[int]]) -> float:
        return max(sum(work[i] for i in share) for share in shares)

    order = balance_ranks(range(8), tokens, 2)
    by_tokens = get_seqlen_balanced_partitions(tokens, k_partitions=2, equal_size=True)
    assert heaviest([order[:4], order[4:]]) < 0.93 * heaviest(by_tokens)
