"""Our statistics against worked numbers of scipy, statsmodels and lifelines (`.ci/oracles.py` wrote them)."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcpo_cli.statistics import clusters, crossed, curves, effects, power, stats, variance

WORKED: dict[str, Any] = json.loads(Path(__file__).with_name("oracles.json").read_text(encoding="utf-8"))


def close(value: Any, rel: float = 1e-9) -> Any:
    return pytest.approx(value, rel=rel, abs=1e-12)


@pytest.mark.parametrize("case", WORKED["paired_t"], ids=lambda case: f"{len(case['diff'])} seeds")
def test_the_paired_t_test(case: dict[str, Any]) -> None:
    found = stats.paired_t(case["diff"])
    assert (found.low, found.high, found.p) == close((case["low"], case["high"], case["p"]))


@pytest.mark.parametrize("case", WORKED["holm"], ids=lambda case: f"{len(case['p'])} tests")
def test_holm(case: dict[str, Any]) -> None:
    assert stats.holm(case["p"]) == close(case["adjusted"])


@pytest.mark.parametrize("case", WORKED["power"], ids=lambda case: f"{case['seeds']} seeds")
def test_power(case: dict[str, Any]) -> None:
    noncentrality = abs(case["effect"]) / case["sd"] * math.sqrt(case["seeds"])
    assert power.power(noncentrality, case["seeds"] - 1) == close(case["power"], 1e-7)
    assert power.detectable_effect(case["sd"], case["seeds"]) == close(case["detectable"], 1e-6)
    assert power.seeds_needed(case["effect"], case["sd"]) == case["needed"]


@pytest.mark.parametrize("case", WORKED["survival"], ids=lambda case: f"{len(case['duration'])} prompts")
def test_survival(case: dict[str, Any]) -> None:
    found = curves.survival(case["duration"], case["observed"])
    at = np.isin(found.time_T, case["time"])
    assert found.share_T[at] == close(case["share"])


def test_the_mean_of_clusters_of_one_size() -> None:
    case = WORKED["cluster_mean"]
    found = clusters.mean(case["value"], np.ones(len(case["value"])), case["cluster"])
    assert (found.mean, found.error) == close((case["mean"], case["error"]))


def test_components_of_a_variance() -> None:
    """statsmodels maximises a likelihood, so it agrees up to the tolerance of its search."""
    case = WORKED["variance"]
    diff = np.array(case["diff"])
    found = variance.components(diff, np.zeros(len(diff)))
    assert (found.seed, found.problem, found.rest) == close((case["seed"], case["problem"], case["rest"]), 1e-3)
    assert crossed.mean(diff).test.error == close(case["error"], 1e-3)
    assert math.sqrt(sum(found.parts.values())) == close(case["error"], 1e-3)


def test_the_probability_of_improvement() -> None:
    case = WORKED["improvement"]
    arm, baseline = (np.array(case[side])[:, None] for side in ("arm", "baseline"))
    assert effects.probability_of_improvement([arm], [baseline]).value == close(case["value"])


@pytest.mark.parametrize("case", WORKED["wilson"], ids=lambda case: f"{case['correct']} of {case['n']}")
def test_the_interval_of_a_share(case: dict[str, Any]) -> None:
    """With z in place of t, and the variance of one binomial draw."""
    share = case["correct"] / case["n"]
    low, high = stats.share_interval(share, share * (1 - share) / case["n"], case["n"], math.inf)
    assert (low, high) == close((case["low"], case["high"]))
