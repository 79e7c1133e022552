"""Which sequences pass through verl's engine."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.backends.verl import at_rest, batches
from mcpo_cli.methods import MiniBatch, Step, get

BEARS = st.lists(st.booleans(), min_size=4, max_size=40).map(lambda bears: bears[: len(bears) // 4 * 4])


@given(bears=BEARS, ranks=st.sampled_from([1, 2, 4]), data=st.data())
def test_all_that_bear_a_gradient_pass_and_no_more_than_ranks_need(
    bears: list[bool], ranks: int, data: st.DataObject
) -> None:
    tokens = data.draw(st.lists(st.integers(1, 50), min_size=len(bears), max_size=len(bears)))
    part = list(range(len(bears)))
    passing = batches.passing(part, bears, tokens, ranks)
    bearing = {i for i in part if bears[i]}
    assert bearing <= set(passing)
    assert len(set(passing)) == len(passing)
    assert len(passing) % ranks == 0
    assert len(passing) == max(ranks, -(-len(bearing) // ranks) * ranks)
    left_out = set(part) - set(passing)
    assert max((tokens[i] for i in set(passing) - bearing), default=0) <= min((tokens[i] for i in left_out), default=50)


@given(bears=BEARS, ranks=st.sampled_from([1, 2, 4]), data=st.data())
def test_log_probabilities_are_computed_of_those_that_pass_and_of_one_in_eight_others(
    bears: list[bool], ranks: int, data: st.DataObject
) -> None:
    tokens = data.draw(st.lists(st.integers(1, 50), min_size=len(bears), max_size=len(bears)))
    prompts = data.draw(st.lists(st.integers(0, 2), min_size=len(bears), max_size=len(bears)))
    kinds, part = [*zip(prompts, bears, strict=True)], list(range(len(bears)))
    measured = batches.measured(bears, kinds)
    # Every kind is measured, one in eight of those that bear nothing; the ranks have no say.
    count = Counter(kind for kind, chosen in zip(kinds, measured, strict=True) if chosen)
    assert count == {kind: size if kind[1] else -(-size // 8) for kind, size in Counter(kinds).items()}
    update, *others = batches.packs(part, bears, measured, tokens, ranks)
    # The update's sequences together, so that what the engine packs is the same.
    assert update == batches.passing(part, bears, tokens, ranks)
    rest = [i for pack in others for i in pack]
    assert len({*update, *rest}) == len(update) + len(rest)
    assert {*update, *rest} >= {i for i in part if measured[i]}
    assert len(rest) % ranks == 0
    assert sum(not measured[i] for i in rest) < ranks


def _unasked() -> torch.Tensor:
    raise AssertionError("log-probabilities were read")


def test_a_hinge_bears_nothing_before_the_first_gradient_step_and_is_reported() -> None:
    """Prompts all wrong, mixed, mastered and mastered, two a mini-batch: the hinge may act from the second one on."""
    method = get("mcpo")
    correct_PG = torch.tensor([[False, False], [True, True], [True, False], [True, True]])
    length_PG = torch.tensor([[1, 2], [3, 1], [2, 2], [2, 3]])
    step = Step(correct_PG.double(), correct_PG, length_PG, torch.arange(4), limit=4)
    signals, _ = method.signals(step, {})
    first = MiniBatch.of(length_PG[:2], signals.map(lambda tensor: tensor[:2]), limit=4)
    logp_PGT = torch.linspace(-2, 0, 24).view(4, 2, 3)
    has_gradient_PG, reported = at_rest.screened(method, step, signals, lambda: logp_PGT, first)
    assert has_gradient_PG.tolist() == [[False, False], [False, False], [True, True], [True, True]]
    reported.close()
    assert reported.pairs["hinge/tokens_active"] == [0, 4]
    assert reported.pairs["hinge/prompts_felt"] == [0, 1]
    # The policy before the last gradient step is another one than that which sampled.
    anchored = get("mcpo", anchor="previous_step")
    has_gradient_PG, reported = at_rest.screened(anchored, step, signals, _unasked, first)
    assert torch.equal(has_gradient_PG, signals.has_gradient_PG)
    assert not reported.pairs
    # DAPO has nothing to screen: no log-probabilities are asked for.
    plain = get("dapo", dynamic_sampling=False)
    signals, _ = plain.signals(step, {})
    has_gradient_PG, reported = at_rest.screened(plain, step, signals, _unasked, first)
    assert has_gradient_PG.any(-1).tolist() == [False, False, True, False]
    assert not reported.pairs
