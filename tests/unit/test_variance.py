"""Components of variance: by hand, and recovered from differences with known components."""

import math

import numpy as np
import pytest

from mcpo_cli.statistics import variance


def test_by_hand() -> None:
    """Two runs on two problems: rows .1 .3 and .5 .9, so means .2, .7 by run and .3, .6 by problem, .45 in all."""
    found = variance.components(np.array([[0.1, 0.3], [0.5, 0.9]]), [0, 1])
    # Mean squares: rest .01, problems 2 (.15^2 + .15^2) = .09, runs 2 (.25^2 + .25^2) = .25.
    assert found.rest**2 == pytest.approx(0.01)
    assert found.problem**2 == pytest.approx((0.09 - 0.01) / 2)
    assert found.seed**2 == pytest.approx((0.25 - 0.01) / 2)
    assert math.isnan(found.base)
    assert found.parts == pytest.approx({"seed": 0.12 / 2, "problem": 0.04 / 2, "rest": 0.01 / 4})
    assert max(found.parts, key=lambda name: found.parts[name]) == "seed"


def test_base_policies_by_hand() -> None:
    """Runs .0 .2 of one base policy and .4 .6 of another, the same on both problems: nothing but bases and seeds."""
    found = variance.components(np.repeat([[0.0], [0.2], [0.4], [0.6]], 2, axis=1), [0, 0, 1, 1])
    # Mean squares: seeds 2 (4 * .1^2) / 2 = .04, bases 2 (4 * .2^2) / 1 = .32.
    assert (found.rest, found.problem) == pytest.approx((0, 0))
    assert found.seed**2 == pytest.approx(0.04 / 2)
    assert found.base**2 == pytest.approx((0.32 - 0.04) / (2 * 2))
    assert found.parts["base"] == pytest.approx(0.07 / 2)


@pytest.mark.parametrize(
    ("base", "seed", "problem", "rest", "largest"),
    [(0.05, 0.02, 0.1, 0.2, "base"), (0.01, 0.08, 0.1, 0.2, "seed"), (0.005, 0.01, 0.4, 0.2, "problem")],
)
def test_known_components_are_found_and_the_largest_is_named(
    base: float, seed: float, problem: float, rest: float, largest: str
) -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(300):
        base_R1 = np.repeat(rng.normal(0, base, (4, 1)), 6, axis=0)
        noise = rng.normal(0, seed, (24, 1)) + rng.normal(0, problem, (1, 100)) + rng.normal(0, rest, (24, 100))
        found.append(variance.components(base_R1 + noise, np.repeat(range(4), 6)))
    squares = np.mean([[one.seed**2, one.problem**2, one.rest**2] for one in found], axis=0)
    assert squares == pytest.approx([seed**2, problem**2, rest**2], rel=0.1, abs=2e-4)
    assert np.mean([one.base**2 for one in found]) == pytest.approx(base**2, rel=0.25, abs=5e-4)
    names = [max(one.parts, key=lambda name, one=one: one.parts[name]) for one in found]
    assert max(set(names), key=names.count) == largest


@pytest.mark.parametrize("diff_RQ", [np.zeros((1, 5)), np.zeros((3, 1)), np.full((3, 3), np.nan), np.zeros(4)])
def test_what_has_no_components_is_refused(diff_RQ: np.ndarray) -> None:
    with pytest.raises(ValueError, match="at least 2 runs and 2 problems"):
        variance.components(diff_RQ, range(len(diff_RQ)))
