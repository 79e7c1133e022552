"""The atlas of estimators: exact gradients by independent formulas, moments by counting, by listing and by sampling.

Its committed rows are what the code gives, and its table shows them.
"""

import dataclasses
import math
from typing import Any

import pandas as pd
import pytest
import torch
from mcpo_study.analysis import EXPERIMENTS
from mcpo_study.analysis.atlas import conditions, sampling, tables
from mcpo_study.analysis.atlas.counting import counted
from mcpo_study.analysis.atlas.estimate import Circumstances, Drawn, Moments, compute, gradients
from mcpo_study.analysis.atlas.sampling import sampled
from mcpo_study.analysis.atlas.world import ACCURACIES, LIMIT, Policy, path, responses, world

from mcpo_cli.config import plan
from mcpo_cli.methods import Method, get, registry

TRAIN = plan.from_overrides(["train.overlong_cache=0"]).runs[0].spec.train
RESULTS = EXPERIMENTS / "atlas" / "results"
ROWS = pd.read_csv(RESULTS / "atlas.csv", na_values=["nan"], keep_default_na=False)


def where(stale: int = 0, **train: Any) -> Circumstances:
    return Circumstances(stale, dataclasses.replace(TRAIN, **train))


POLICIES = {"base": world().base, "stale": path(4)[-1], "rounded": world().base.rounded(1.0)}


def test_the_responses_are_all_there_are_and_the_prompts_have_their_accuracies() -> None:
    every = responses()
    # One end, three symbols and an end, nine pairs and any of four tokens.
    assert len({tuple(row) for row in every.token_RT.tolist()}) == len(every.token_RT) == 1 + 3 + 9 * 4
    for policy in POLICIES.values():
        assert torch.allclose(policy.probability_PR.sum(-1), torch.ones(len(ACCURACIES)).double())
    assert world().accuracy_P(world().base).tolist() == pytest.approx(ACCURACIES)


@pytest.mark.parametrize("name", POLICIES)
def test_the_exact_gradient_is_that_of_the_listed_expectation(name: str) -> None:
    logits_PSV = POLICIES[name].logits_PSV.clone().requires_grad_()
    world().accuracy_P(Policy(logits_PSV)).mean().backward()
    assert logits_PSV.grad is not None
    assert torch.allclose(world().gradient(POLICIES[name]), logits_PSV.grad, rtol=0, atol=1e-14)


@pytest.mark.parametrize("rollouts", [2, 16])
@pytest.mark.parametrize(
    ("method", "gain"),
    [
        (get("rloo", aggregation="seq-mean-token-sum"), lambda G: 1),
        (get("dr_grpo"), lambda G: (G - 1) / G / LIMIT),
        (get("topr"), lambda G: 2),
        (get("psr_nsr", aggregation="seq-mean-token-sum"), lambda G: 1.1),
    ],
    ids=["rloo", "dr_grpo", "topr", "psr_nsr"],
)
def test_estimators_that_are_unbiased_by_theory_are_so_up_to_their_factor(
    method: Method, gain: Any, rollouts: int
) -> None:
    moments = counted(method, where(), rollouts)
    assert moments is not None
    measures = moments.measures()
    assert measures["gain"] == pytest.approx(gain(rollouts), abs=1e-12)
    assert measures["cosine_mean"] == pytest.approx(1, abs=1e-12)
    assert measures["bias"] == pytest.approx(abs(gain(rollouts) - 1), abs=1e-6)


def listed(method: Method, of: Circumstances) -> Moments:
    """Moments for G = 2 from every pair of responses to every prompt."""
    P, R = of.world.correct_PR.shape
    first, second = (axis.flatten() for axis in torch.meshgrid(torch.arange(R), torch.arange(R), indexing="ij"))
    mean_D, variance = torch.zeros(0).double(), 0.0
    for p in range(P):
        pairs = Drawn(torch.full_like(first, p), torch.stack([first, second], -1))
        coefficient_MGT = compute(method, of, pairs, {}, 0).coefficient_MGT * len(first) / P
        own_MD = gradients(of, pairs, coefficient_MGT, len(first)).view(len(first), P, -1)[:, p]
        probability_R = of.sampler.probability_PR[p]
        weight_M = probability_R[first] * probability_R[second]
        own_D = weight_M @ own_MD
        variance += float(weight_M @ own_MD.square().sum(-1) - own_D @ own_D)
        mean_D = torch.cat([mean_D, own_D])
    exact_D, of_mean = of.exact_PSV.flatten(), float(mean_D @ mean_D)
    return Moments(float(mean_D @ exact_D), of_mean, of_mean + variance, float(exact_D @ exact_D))


@pytest.mark.parametrize("name", ["grpo", "mc_grpo", "rl_zvp", "max_rl"])
@pytest.mark.parametrize("stale", [0, 4])
def test_counting_gives_the_moments_of_all_pairs_of_responses(name: str, stale: int) -> None:
    method, of = get(name), where(stale, sampler_rounding=0.5, correction="token-truncate")
    found, expected = counted(method, of, 2), listed(method, of)
    assert found is not None
    for one, other in zip(dataclasses.astuple(found), dataclasses.astuple(expected), strict=True):
        assert one == pytest.approx(other, rel=1e-9)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer batches than the atlas draws."""
    monkeypatch.setattr(sampling, "SINGLY", 90)
    monkeypatch.setattr(sampling, "ROLLOUTS", 45_000)


def agree(one: dict[str, float], other: dict[str, float]) -> None:
    for name in ("cosine_mean", "cosine"):
        error = math.hypot(one.get(f"{name}_se", 0), other.get(f"{name}_se", 0))
        assert 0 < error < 0.1
        assert abs(one[name] - other[name]) < 4 * error, name


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", ["grpo", "mc_grpo", "rl_zvp", "gspo"])
@pytest.mark.parametrize("stale", [0, 4])
def test_sampling_agrees_with_counting_within_its_error(name: str, stale: int) -> None:
    moments = counted(get(name), where(stale), 5)
    assert moments is not None
    agree(sampled(get(name), where(stale), 5).measures(), moments.measures())


def test_measures_by_hand() -> None:
    """g = (1, 0); x is (2, 0) or (0, 2), so that its mean is (1, 1) and its mean square 4."""
    found = Moments(along=1, mean_square=2, square=4, exact=1).measures()
    root = math.sqrt(0.5)
    assert found == pytest.approx(
        {"gain": 1, "bias": 1, "cosine_mean": root, "bias_scaled": root, "noise": 1, "cosine": 0.5}
    )
    nothing = Moments(along=0, mean_square=0, square=4, exact=1).measures()
    assert nothing["gain"] == nothing["cosine"] == 0
    assert math.isnan(nothing["cosine_mean"])
    assert math.isnan(nothing["noise"])


def test_groups_have_a_size_that_the_method_takes() -> None:
    sizes = {
        name: [conditions.fitting(get(name), TRAIN, G) for G in (2, 4, 8)]
        for name in ("grpo", "mc_grpo", "passk", "gfpo")
    }
    assert sizes == {"grpo": [2, 4, 8], "mc_grpo": [3, 5, 9], "passk": [None, 4, 8], "gfpo": [None, None, 8]}


def test_every_method_and_condition_has_a_row() -> None:
    expected = {
        (name, condition.rollouts, condition.stale, condition.rounding, condition.correction)
        for name in registry()
        for condition in conditions.conditions()
        if conditions.fitting(get(name), TRAIN, condition.rollouts)
    }
    columns = ["arm", "rollouts", "stale", "rounding", "correction"]
    assert sorted(ROWS[columns].itertuples(index=False, name=None)) == sorted(expected)


def test_committed_rows_that_were_counted_are_what_the_code_gives() -> None:
    chosen = ROWS[(ROWS["batches"] == 0) & (ROWS["rollouts"] == 4) & (ROWS["stale"] == 4)]
    assert len(chosen) > 10
    for committed in chosen.to_dict("records"):
        found = conditions.row(get(committed["arm"]), TRAIN, conditions.Condition(4, 4))
        assert found is not None
        for name in ("gain", "cosine_mean", "noise", "cosine"):
            # Pass@4 of four rollouts has no advantage, hence no direction.
            expected = pytest.approx(committed[name], rel=1e-3, abs=1e-3, nan_ok=committed["arm"] == "passk")
            assert found[name] == expected, (committed["arm"], name)


@pytest.mark.slow
def test_committed_rows_of_trained_arms_that_were_counted_are_what_the_code_gives() -> None:
    rows = pd.read_csv(RESULTS / "atlas-suites.csv")
    rows = rows[(rows["batches"] == 0) & (rows["stale"] == 4)]
    assert {*rows["suite"]} == {"methods-ratio", "methods-weights", "methods-baselines", "methods-small-groups"}
    for suite, own in rows.groupby("suite"):
        arms = {run.arm: run.spec for run in plan.from_suite(str(suite), ["seed=0"], "").runs}
        for committed in own.to_dict("records"):
            spec = arms[committed["arm"]]
            found = conditions.row(spec.method, spec.train, conditions.Condition(committed["rollouts"], 4))
            assert found is not None
            assert found["size"] == committed["size"] <= spec.train.rollouts
            assert found["cosine"] == pytest.approx(committed["cosine"], rel=1e-3), committed["arm"]


def test_the_table_has_the_numbers_of_the_rows() -> None:
    grid = tables.grid(ROWS)
    line = dict(zip(grid.header, next(row for row in grid.rows if row[0] == "passk"), strict=True))
    assert line["cos G=2"] == "-"
    row = tables.at(ROWS[ROWS["arm"] == "passk"], 16, 0).iloc[0]
    assert (line["gain"], line["noise"], line["G=16"]) == tuple(
        f"{row[name]:.2f}" for name in ("gain", "noise", "cosine")
    )
    row = tables.at(ROWS[ROWS["arm"] == "passk"], 16, 0, conditions.ROUNDING, "sequence-truncate").iloc[0]
    assert line["sequence TIS"] == f"{row['cosine_mean']:.2f}"
