"""Variants of MCPO: the extensions change only what their names say; the placebo holds as many prompts, but others."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mcpo_cli.methods import Step, get, query_weight, reduce
from mcpo_cli.methods.mcpo import hinge_kl
from mcpo_cli.testing import mini_batch
from mcpo_cli.testing import step as random_step
from tests.golden.literature import signals, step


def test_the_extended_method_at_its_defaults_is_mcpo() -> None:
    of, paper, extended = random_step(), get("mcpo"), get("mcpo_extended")
    batches = [mini_batch(method, of, signals(method, of)) for method in (paper, extended)]
    losses = [
        reduce(method.token_loss(batch), batch.mask_BT)
        for method, batch in zip((paper, extended), batches, strict=True)
    ]
    assert losses[0] == losses[1]
    assert torch.equal(*(signals(method, of).has_gradient_PG for method in (paper, extended)))


def test_right_rollouts_of_almost_mastered_prompts_are_held() -> None:
    of = step([[1] * 9 + [0], [1] * 8 + [0] * 2, [1] * 10])
    found = signals(get("mcpo_extended", mastery=0.9), of)
    assert found.columns["mastered"].sum(-1).tolist() == [9, 0, 10]
    assert not found.columns["mastered"][0, 9]
    assert found.has_gradient_PG.sum(-1).tolist() == [10, 10, 10]


@pytest.mark.parametrize(("right", "factor"), [(2, 1), (3, 2 / math.sqrt(3)), (7, 1.5)])
def test_the_cap_bounds_the_factor(right: int, factor: float) -> None:
    """1/(2 sqrt(p(1 - p))) is 2/sqrt(3) at p = 3/4 (of 4), and 4/sqrt(7) = 1.512 at p = 7/8, cut to 1.5."""
    G = 8 if right == 7 else 4
    of = step([[1] * right + [0] * (G - right)])
    found_PG = signals(get("mcpo_extended", reweight_cap=1.5), of).advantage
    assert torch.allclose(found_PG, signals(get("grpo"), of).advantage * factor)
    weight = query_weight(get("mcpo_extended", reweight_cap=1.5), right / G)
    assert float(weight) == pytest.approx(float(query_weight("grpo", right / G)) * factor)


def test_delta_follows_the_share_of_active_tokens() -> None:
    method, of = get("mcpo_extended", target_active=0.1), step([(1, 1), (1, 0)])
    found, state = method.signals(of, {})
    assert found.columns["delta"].tolist() == [[0.01, 0.01], [0.01, 0.01]]
    # Twice the target and more: up by the rate, .2. None active: down by the rate. At the target: unchanged.
    for share, change in ((0.5, 0.2), (0.2, 0.2), (0.15, 0.1), (0.1, 0.0), (0.0, -0.2)):
        after = method.learn(state, {"hinge/tokens_active": share})
        assert float(after["delta"]) == pytest.approx(0.01 * math.exp(change))
    assert method.learn(state, {}) == state
    assert get("mcpo_extended").learn(state, {"hinge/tokens_active": 0.5}) == state
    wider = method.learn(state, {"hinge/tokens_active": 0.5})
    again, _ = method.signals(of, wider)
    assert again.columns["delta"][0, 0] == float(wider["delta"])


def test_the_hinge_uses_the_budget_of_the_state() -> None:
    method, of = get("mcpo_extended", target_active=0.1), random_step((4, 4))
    found, _ = method.signals(of, {"delta": torch.tensor([0.15], dtype=torch.float64)})
    batch = mini_batch(method, of, found)
    (_, hinge) = method.token_loss(batch).terms
    assert torch.equal(hinge.value_BT, hinge_kl(batch.log_ratio_BT, 0.15))
    inside_BT = (batch.log_ratio_BT.abs() <= 0.15) & batch.mask_BT
    share = 1 - float(inside_BT.sum() / batch.mask_BT.sum())
    sums = method.report(batch).sums
    active, tokens = sums["hinge/tokens_active"]
    assert float(active / tokens) == pytest.approx(share)
    mastered_BT = batch.mask_BT & batch.columns["mastered"].bool()[:, None]
    drift, count = sums["hinge/drift_sum"]
    assert float(drift.detach()) == pytest.approx(float((batch.log_ratio_BT.detach().abs() * mastered_BT).sum()))
    assert int(count) == 0


def held(of: Step, **options: object) -> list[bool]:
    """For each prompt, True if the hinge holds it, with all of its rollouts or none."""
    column_PG = signals(get("mcpo_placebo", **options), of).columns["mastered"]
    assert torch.equal(column_PG.all(-1), column_PG.any(-1))
    return [bool(one) for one in column_PG.all(-1)]


def of_accuracies(right: Sequence[int], length: int) -> Step:
    """Prompts with these numbers of correct answers of 4, and responses of equal length."""
    length_PG = torch.full((len(right), 4), length)
    return step([[1] * number + [0] * (4 - number) for number in right], length_PG=length_PG)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(1, 50))
def test_the_placebo_holds_as_many_prompts_as_are_mastered_whatever_their_order(right: list[int], length: int) -> None:
    of = of_accuracies(right, length)
    found = held(of)
    assert sum(found) == right.count(4)
    back = Step(of.reward_PG.flip(0), of.correct_PG.flip(0), of.length_PG.flip(0), of.prompt_P.flip(0), of.max_response)
    assert held(back) == found[::-1]


def test_over_steps_the_placebo_draws_every_prompt_about_as_often() -> None:
    """A quarter of 16 prompts is mastered, always the same; over 400 steps each prompt is held in about a quarter."""
    times = torch.tensor([held(of_accuracies([4] * 4 + [2] * 12, length)) for length in range(1, 401)]).sum(0)
    # Five standard deviations of a binomial with 400 draws of 1/4: 5 sqrt(400/4 3/4) = 43.3.
    assert int(times.sum()) == 4 * 400
    assert times.min() > 100 - 44
    assert times.max() < 100 + 44


def test_the_placebo_of_all_holds_every_prompt_and_the_mean_is_over_what_is_held() -> None:
    of = of_accuracies([4, 0, 3], 5)
    assert held(of, held="all") == [True, True, True]
    method, of = get("mcpo_placebo", held="all", beta=2.0), random_step((4, 4))
    batch = mini_batch(method, of, signals(method, of))
    hinge = method.token_loss(batch).terms[-1]
    # beta over the 8 held sequences and their tokens.
    assert torch.allclose(hinge.weight_B, 2 / (8 * batch.length_B.double()))


def test_the_placebo_without_the_hinge_is_mcpo_without_the_hinge() -> None:
    of = random_step()
    batches = [
        mini_batch(method, of, signals(method, of))
        for method in (get("mcpo", hinge=False), get("mcpo_placebo", hinge=False))
    ]
    for term, other in zip(*(get("mcpo", hinge=False).token_loss(batch).terms for batch in batches), strict=True):
        assert torch.equal(term.value_BT, other.value_BT)
        assert torch.equal(term.weight_B, other.weight_B)
