"""The control for the hinge: it holds as many prompts as MCPO does, but other ones."""

from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.methods import get
from mcpo_cli.methods.base import Step
from mcpo_cli.testing import mini_batch
from mcpo_cli.testing import step as random_step
from tests.golden.literature import signals, step


def held(of: Step, **options: object) -> list[bool]:
    """For each prompt, True if the hinge holds it, with all of its rollouts or none."""
    column_PG = signals(get("mcpo_placebo", **options), of).columns["mastered"]
    assert torch.equal(column_PG.all(-1), column_PG.any(-1))
    return [bool(one) for one in column_PG.all(-1)]


def of_accuracies(right: Sequence[int], length: int) -> Step:
    """Prompts with these numbers of correct answers of 4, and responses of equal length."""
    made = step([[1] * number + [0] * (4 - number) for number in right])
    return Step(made.reward_PG, made.correct_PG, made.length_PG * 0 + length, made.prompt_P, 99)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(1, 50))
def test_it_holds_as_many_prompts_as_are_mastered_whatever_their_order(right: list[int], length: int) -> None:
    of = of_accuracies(right, length)
    found = held(of)
    assert sum(found) == right.count(4)
    back = Step(of.reward_PG.flip(0), of.correct_PG.flip(0), of.length_PG.flip(0), of.prompt_P.flip(0), of.max_response)
    assert held(back) == found[::-1]


def test_over_steps_every_prompt_is_drawn_about_as_often() -> None:
    """A quarter of 16 prompts is mastered, always the same; over 400 steps each prompt is held in about a quarter."""
    times = torch.tensor([held(of_accuracies([4] * 4 + [2] * 12, length)) for length in range(1, 401)]).sum(0)
    # Five standard deviations of a binomial with 400 draws of 1/4: 5 sqrt(400/4 3/4) = 43.3.
    assert int(times.sum()) == 4 * 400
    assert times.min() > 100 - 44
    assert times.max() < 100 + 44


def test_all_holds_every_prompt_and_the_mean_is_over_what_is_held() -> None:
    of = of_accuracies([4, 0, 3], 5)
    assert held(of, held="all") == [True, True, True]
    method, of = get("mcpo_placebo", held="all", beta=2.0), random_step((4, 4))
    batch = mini_batch(method, of, signals(method, of))
    hinge = method.token_loss(batch).terms[-1]
    # beta over the 8 held sequences and their tokens.
    assert torch.allclose(hinge.weight_B, 2 / (8 * batch.length_B.double()))


def test_without_the_hinge_it_is_mcpo_without_the_hinge() -> None:
    of = random_step()
    batches = [
        mini_batch(method, of, signals(method, of))
        for method in (get("mcpo", hinge=False), get("mcpo_placebo", hinge=False))
    ]
    for term, other in zip(*(get("mcpo", hinge=False).token_loss(batch).terms for batch in batches), strict=True):
        assert torch.equal(term.value_BT, other.value_BT)
        assert torch.equal(term.weight_B, other.weight_B)
