"""Metrics and rows of a global step against values computed by hand, and warnings of an unsound run."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.graded import Graded, equal_pairs
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local.batch import Sampled
from mcpo_cli.backends.local.generate import sample
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.tokenizer import build
from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.config.schema import Model
from mcpo_cli.data.base import Problem
from mcpo_cli.methods import MiniBatch, Report, Term, TokenBatch, TokenLoss, get, query_weight
from mcpo_cli.records import StepRow
from mcpo_cli.runs import sanity
from mcpo_cli.tasks.chains import Arithmetic


def groups(*right: int, rollouts: int = 4) -> torch.Tensor:
    """One group per count, in which that number, the first rollouts, are correct."""
    return torch.tensor([[place < count for place in range(rollouts)] for count in right])


def weights(correct_PG: torch.Tensor, advantage_PG: torch.Tensor) -> dict[str, float]:
    """Weights of groups without empty places."""
    return measure.weights(correct_PG, advantage_PG, torch.tensor(correct_PG.shape[-1]).expand(len(correct_PG)))


def test_weights_by_hand() -> None:
    """1, 2, 3 and 4 of 4 correct: W = sqrt(3)/4, 1/2, sqrt(3)/4 and none for the mastered prompt."""
    correct_PG = groups(1, 2, 3, 4)
    found = weights(correct_PG, get("grpo").advantages(correct_PG, correct_PG))
    edge = math.sqrt(3) / 4
    # sum |A| of p = 1/4: sqrt(3) + 3 / sqrt(3) = 2 sqrt(3), as of p = 3/4; of p = 1/2: 4. sum A^2 is 4 in each.
    assert found == pytest.approx(
        {
            "weight/p_0.00_0.25": edge,
            "weight/p_0.25_0.50": 0.5,
            "weight/p_0.50_0.75": edge,
            "weight/share_minority": (edge + 0.5) / (2 * edge + 0.5),
            "weight/effective_sample": (4 * math.sqrt(3) + 4) ** 2 / 12,
        },
        abs=1e-12,
    )


def test_a_batch_without_an_advantage_has_no_weights() -> None:
    correct_PG = groups(0, 4)
    assert weights(correct_PG, torch.zeros(2, 4, dtype=torch.float64)) == {}


WEIGHTS = {name: [float(query_weight(name, k / 8)) for k in range(9)] for name in ("grpo", "mcpo")}


@settings(max_examples=30)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=12).filter(lambda right: any(0 < k < 8 for k in right)))
def test_the_share_on_minority_prompts_is_that_of_the_analytic_weights(right: list[int]) -> None:
    correct_PG = groups(*right, rollouts=8)
    for name, weight in WEIGHTS.items():
        found = weights(correct_PG, get(name).advantages(correct_PG, correct_PG))
        share = sum(weight[k] for k in right if k <= 4) / sum(weight[k] for k in right)
        assert found["weight/share_minority"] == pytest.approx(share, abs=1e-12)
        assert 0 < found["weight/effective_sample"] <= 8 * len(right) + 1e-9


def test_measured_weights_meet_the_analytic_ones_where_advantages_are_cut() -> None:
    """15 of 16 right, |A| cut at 2: A+ = 8/15, A- = -2, W = 15/256 (8/15 + 2), not the 1/2 that right answers show."""
    correct_PG = groups(15, rollouts=16)
    method = get("reweighted", clip_advantage=2.0)
    found = weights(correct_PG, method.advantages(correct_PG, correct_PG))
    assert found["weight/p_0.75_1.00"] == pytest.approx(15 / 256 * (8 / 15 + 2), abs=1e-12)
    assert found["weight/p_0.75_1.00"] == pytest.approx(query_weight(method, 15 / 16), abs=1e-12)


def test_weights_do_not_see_a_baseline() -> None:
    correct_PG = groups(1, 3)
    advantage_PG = get("grpo").advantages(correct_PG, correct_PG)
    found, shifted = (weights(correct_PG, advantage_PG + shift) for shift in (0.0, 0.7))
    del found["weight/effective_sample"], shifted["weight/effective_sample"]
    assert shifted == pytest.approx(found)


def test_answers_are_equal_where_their_texts_are() -> None:
    answers = [["7", None, "x", "7"], ["x", "", "x", None]]
    assert measure.answer_classes(answers) == [[0, -1, 1, 0], [0, -1, 0, -1]]


def test_group_rows_by_hand() -> None:
    """Entropies are means over tokens, not over rollouts; one without rollouts or entropies is left out."""
    graded = Graded(
        problems=[Problem("a", "1"), Problem("b", "2")],
        correct_PG=torch.tensor([[True, True, False], [False, False, False]]),
        reward_PG=torch.zeros(2, 3),
        length_PG=torch.tensor([[2, 6, 4], [4, 4, 4]]),
        ended_PG=torch.tensor([[True, False, True], [True, True, True]]),
        same_P=torch.tensor([0.0, 1 / 3]),
        entropy_PG=torch.tensor([[0.4, 0.8, 1.0], [0.5, 0.5, 0.5]]),
    )
    first, second = measure.group_rows(7, graded, {1})
    # (2 * 0.4 + 6 * 0.8) / 8 = 0.7 of the right ones; with 4 * 1.0 of the wrong one (5.6 + 4) / 12 = 0.8.
    assert (first["entropy"], first["entropy_right"], first["entropy_wrong"]) == pytest.approx((0.8, 0.7, 1.0))
    assert (first["p"], first["mean_length"], first["truncated"], first["duplicates"]) == pytest.approx(
        (2 / 3, 4.0, 1 / 3, 0.0)
    )
    assert (first["kept"], second["kept"], second["step"]) == (False, True, 7)
    assert "entropy_right" not in second
    assert second["entropy_wrong"] == second["entropy"] == 0.5
    for row in measure.group_rows(7, dataclasses.replace(graded, entropy_PG=None), {1}):
        assert not {"entropy", "entropy_right", "entropy_wrong"} & row.keys()


# --- the row of a gradient step, from sums of its parts ---------------------------------------------------------------


def test_a_method_without_a_hinge_has_one_loss() -> None:
    """A ratio of e^0.5 with advantage 1, clipped at 1.28; d = -0.25 with advantage 0 has no gradient."""
    batch = TokenBatch(
        logp_BT=torch.tensor([[0.5], [-0.25]]).double(),
        logp_old_BT=torch.zeros(2, 1).double(),
        mask_BT=torch.ones(2, 1).bool(),
        advantage_BT=torch.tensor([[1.0], [0.0]]),
        group_B=torch.arange(2),
        total=MiniBatch(2, 2, 2, 4, {}),
        columns={},
    )
    method = get("dapo")
    sums = measure.losses(method.token_loss(batch), batch.mask_BT)
    sums.merge(measure.reported(method.report(batch), batch.group_B))
    row = measure.mini_batch_row(3, 2, sums)
    assert (row["step"], row["mini_batch"]) == (3, 2)
    assert row["sums"] == {
        "train/policy_loss": [pytest.approx(-1.28 / 2), 1],
        "train/clip_high": [1, 1],
        "train/clip_low": [0, 1],
        "train/approx_kl": [pytest.approx(math.exp(0.5) - 1.5), 1],
    }


def part(value: float, prompts: dict[str, tuple[list[bool], list[bool]]], group_B: list[int]) -> MetricSums:
    """The sums of one micro-batch: a loss term of this value, a mean, and shares of prompts."""

    def flags(found: list[bool]) -> Tensor:
        return torch.tensor(found)

    loss = TokenLoss((Term("policy", torch.tensor([[value]]), torch.tensor([1.0])),))
    sums = measure.losses(loss, torch.ones(1, 1, dtype=torch.bool))
    sides = {name: (flags(flagged), flags(among)) for name, (flagged, among) in prompts.items()}
    report = Report({"x/mean": (torch.tensor(value), torch.tensor(2.0))}, sides)
    sums.merge(measure.reported(report, torch.tensor(group_B)))
    return sums


def test_a_prompt_counts_once_however_its_rollouts_are_spread() -> None:
    """Prompt 3 is flagged in both parts, 4 in none; losses add up, and are one value of one mini-batch."""
    sums = part(0.25, {"x/felt": ([True, False], [True, True])}, [3, 4])
    sums.merge(part(0.5, {"x/felt": ([True, False], [True, False])}, [3, 5]))
    row = measure.mini_batch_row(1, 1, sums)
    assert row["sums"] == {"train/policy_loss": [0.75, 1], "x/mean": [0.75, 4], "x/felt": [1, 2]}
    # The step's loss is the mean of its mini-batches' losses, not of their parts.
    step, second = MetricSums(), part(0.25, {}, [])
    second.close()
    for own in (sums, second):
        step.merge(own)
    assert step.means() == {"train/policy_loss": 0.5, "x/mean": pytest.approx(1 / 6), "x/felt": 0.5}


# --- signs of an unsound run ------------------------------------------------------------------------------------------


PAD = 0


def graded(token_PGT: torch.Tensor, logp_PG: torch.Tensor | None = None) -> Graded:
    """Responses padded with PAD; correct if the first token is 1, ended if the last one is PAD."""
    P = len(token_PGT)
    correct_PG = token_PGT[..., 0] == 1
    return Graded(
        problems=[Problem(f"{i}", "1") for i in range(P)],
        correct_PG=correct_PG,
        reward_PG=correct_PG.double(),
        length_PG=(token_PGT != PAD).sum(-1),
        ended_PG=token_PGT[..., -1] == PAD,
        same_P=equal_pairs(token_PGT),
        logp_PG=logp_PG,
    )


def rows(*values: float) -> list[StepRow]:
    metrics = [{"sanity/truncated": value} for value in values]
    return [StepRow(step=step, time=0.0, metrics=of_step) for step, of_step in enumerate(metrics, start=1)]


def drawn(probability: list[float], P: int, G: int, seed: int) -> Graded:
    """P groups of G independent draws of one of several responses, whose numbers are their lengths."""
    share_K = torch.tensor(probability, dtype=torch.float64)
    share_K /= share_K.sum()
    K = len(share_K)
    choice_PG = torch.multinomial(share_K.expand(P, K), G, replacement=True, generator=torch.manual_seed(seed))
    token_KT = torch.ones(K, K + 1, dtype=torch.long).tril()
    return graded(token_KT[choice_PG], share_K.log()[choice_PG])


def test_equal_pairs_by_hand() -> None:
    """One of three pairs is equal; a response that is a prefix of another is not equal to it."""
    a, b = [1, 2, 0], [1, 2, 3]
    assert equal_pairs(torch.tensor([[a, b, a], [a, a, a], [a, b, [1, 0, 0]]])).tolist() == [1 / 3, 1, 0]


def test_a_right_answer_with_reasoning_is_not_bare() -> None:
    token_PGT = torch.ones(1, 4, measure.BARE_TOKENS, dtype=torch.long)
    token_PGT[0, 0, -1] = PAD
    assert measure.sanity(graded(token_PGT), reasons=True)["sanity/bare_right"] == 0.25
    assert "sanity/bare_right" not in measure.sanity(graded(token_PGT + 1), reasons=True)
    assert "sanity/bare_right" not in measure.sanity(graded(token_PGT), reasons=False)


@settings(max_examples=30)
@given(st.lists(st.floats(0.05, 1), min_size=1, max_size=4), st.integers(2, 5), st.integers(0, 2**31))
def test_the_expected_duplicates_are_those_of_independent_draws(probability: list[float], G: int, seed: int) -> None:
    found = measure.sanity(drawn(probability, 2000, G, seed), reasons=False)
    share = torch.tensor(probability, dtype=torch.float64) / sum(probability)
    equal = float((share**2).sum())
    # Five standard errors of a mean of 2000 values in 0..1, whose standard deviation is 0.5 at most.
    assert found["sanity/duplicates"] == pytest.approx(equal, abs=0.056)
    assert found["sanity/duplicates_expected"] == pytest.approx(equal, abs=0.056)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_local_engine_knows_the_probability_of_its_responses_at_temperature_1(temperature: float) -> None:
    tokenizer = build(Arithmetic().vocabulary)
    policy = Policy(policies.build(Model(hidden=16, layers=1, mlp=16, init_std=0.2), tokenizer, 0), torch.device("cpu"))
    prompt_PS = torch.arange(3).repeat(40, 1)
    rollouts = sample(policy, prompt_PS, 8, 2, temperature, tokenizer.eos_token_id, seed=0)
    wrong_PG = torch.zeros(40, 8, dtype=torch.bool)
    problems = [Problem(f"{i}", "1") for i in range(40)]
    verdicts = (wrong_PG, torch.ones_like(wrong_PG), wrong_PG)
    sampled = Sampled(temperature, problems, rollouts, *verdicts, [], wrong_PG.double(), torch.arange(40))
    found = measure.sanity(sampled.graded, reasons=False)
    assert 0.02 < found["sanity/duplicates"] < 0.98
    if temperature == 1:
        assert found["sanity/duplicates_expected"] == pytest.approx(found["sanity/duplicates"], rel=0.2)
    else:
        assert "sanity/duplicates_expected" not in found
    assert (sampled.graded.entropy_PG - rollouts.entropy_PGT.mean(-1)).abs()[rollouts.length_PG == 2].max() < 1e-6


def test_seeds_that_repeat_are_told() -> None:
    """Half of each group copied from the other half."""
    sound = drawn([0.4, 0.3, 0.2, 0.1], 128, 16, seed=0)
    token_KT = torch.ones(4, 5, dtype=torch.long).tril()
    half_PGT = token_KT[sound.length_PG[:, :8] - 1]
    assert sound.logp_PG is not None
    broken = graded(torch.cat([half_PGT, half_PGT], 1), torch.cat([sound.logp_PG[:, :8]] * 2, 1))
    assert sanity.warnings([StepRow(step=1, time=0.0, metrics=measure.sanity(sound, reasons=False))]) == []
    (warned,) = sanity.warnings([StepRow(step=1, time=0.0, metrics=measure.sanity(broken, reasons=False))])
    assert warned["metric"] == "sanity/duplicates_excess"


def test_warnings_say_when_and_how_often() -> None:
    (warned,) = sanity.warnings(rows(0.1, 0.3, 0.25, 0.4, 0.35))
    limit = next(limit for limit in sanity.LIMITS if limit.metric == "sanity/truncated")
    assert warned == {
        "metric": limit.metric,
        "limit": 0.25,
        "says": limit.says,
        "steps": 3,
        "first_step": 2,
        "worst_step": 4,
        "worst": 0.4,
    }
    assert sanity.line(warned) == f"{limit.says} (sanity/truncated 0.4 at step 4, above 0.25)"


@pytest.mark.parametrize(("rollouts", "told"), [(32, False), (2048, True)])
def test_few_rollouts_exceed_a_share_by_chance(rollouts: int, told: bool) -> None:
    """With a limit of a quarter, 12 of 32 may be chance; 768 of 2048 cannot."""
    (row,) = rows(0.375)
    row["metrics"]["cost/rollouts"] = float(rollouts)
    assert bool(sanity.warnings([row])) is told
