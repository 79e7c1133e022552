"""The sequences of a batch that verl trains, and the precision of its loss."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.backends.verl import batch as batches
from mcpo_cli.backends.verl import loss
from mcpo_cli.methods import MiniBatch, Step, get

BEARS = st.lists(st.booleans(), min_size=4, max_size=40).map(lambda bears: bears[: len(bears) // 4 * 4])


@given(bears=BEARS, ranks=st.sampled_from([1, 2, 4]), data=st.data())
def test_all_with_a_gradient_are_trained_and_no_more_than_ranks_need(
    bears: list[bool], ranks: int, data: st.DataObject
) -> None:
    tokens = data.draw(st.lists(st.integers(1, 50), min_size=len(bears), max_size=len(bears)))
    part = list(range(len(bears)))
    passing = batches.select_trained(part, bears, tokens, ranks)
    bearing = {i for i in part if bears[i]}
    assert bearing <= set(passing)
    assert len(set(passing)) == len(passing)
    assert len(passing) % ranks == 0
    assert len(passing) == max(ranks, -(-len(bearing) // ranks) * ranks)
    left_out = set(part) - set(passing)
    assert max((tokens[i] for i in set(passing) - bearing), default=0) <= min((tokens[i] for i in left_out), default=50)


def _unasked() -> torch.Tensor:
    raise AssertionError("log-probabilities were read")


def test_a_hinge_has_no_gradient_before_the_first_gradient_step_and_is_reported() -> None:
    """Prompts all incorrect, mixed, mastered, mastered; two per mini-batch: the hinge may act from the second on."""
    method = get("mcpo")
    correct_PG = torch.tensor([[False, False], [True, True], [True, False], [True, True]])
    length_PG = torch.tensor([[1, 2], [3, 1], [2, 2], [2, 3]])
    step = Step(correct_PG.double(), correct_PG, length_PG, torch.arange(4), max_response=4)
    signals, _ = method.signals(step, {})
    first = MiniBatch.of(length_PG[:2], signals.map(lambda tensor: tensor[:2]), max_response=4)
    logp_PGT = torch.linspace(-2, 0, 24).view(4, 2, 3)
    has_gradient_PG, reported = batches.screen(method, step, signals, lambda: logp_PGT, first, 2)
    assert has_gradient_PG.tolist() == [[False, False], [False, False], [True, True], [True, True]]
    reported.close()
    assert reported.pairs["hinge/tokens_active"] == [0, 4]
    assert reported.pairs["hinge/drift_sum"] == [0, 0]
    assert reported.pairs["hinge/prompts_felt"] == [0, 1]
    # The policy before the last gradient step is not the one that sampled.
    anchored = get("mcpo", anchor="previous_step")
    has_gradient_PG, reported = batches.screen(anchored, step, signals, _unasked, first, 2)
    assert torch.equal(has_gradient_PG, signals.has_gradient_PG)
    assert not reported.pairs
    # DAPO does not screen, so no log-probabilities are computed.
    plain = get("dapo", dynamic_sampling=False)
    signals, _ = plain.signals(step, {})
    has_gradient_PG, reported = batches.screen(plain, step, signals, _unasked, first, 2)
    assert has_gradient_PG.any(-1).tolist() == [False, False, True, False]
    assert not reported.pairs


def test_a_loss_has_its_own_precision_where_verl_calls_it_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = torch.ones(2, 2)
    monkeypatch.setattr(loss, "_loss", lambda *_: (factor @ factor, {}))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (factor @ factor).dtype == torch.bfloat16
        value, _ = loss.loss(get("fipo"), {"log_probs": factor}, {})
    assert value.dtype == torch.float32
