"""A new run against a history of runs: the prediction interval, and its level where the truth is known."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcpo_cli.statistics import crossed

TRIALS = 1000


def test_the_interval_is_students_prediction_interval() -> None:
    """Six earlier runs and two new ones of 2 problems, by hand and by the t distribution."""
    means_S = np.array([0.50, 0.54, 0.46, 0.52, 0.48, 0.56])
    old_SP = np.stack([means_S - 0.1, means_S + 0.1], axis=1)
    for new in ([0.60], [0.60, 0.62]):
        new_SP = np.stack([np.array(new)] * 2, axis=1)
        found = crossed.difference(new_SP, old_SP, same_seeds=False, over="history")
        # The squares around .51 sum to .0070, so the variance is .0014.
        error = math.sqrt(0.0014 * (1 / 6 + 1 / len(new)))
        assert (found.test.mean, found.test.error) == pytest.approx((np.mean(new) - 0.51, error), abs=1e-12)
        assert found.test.interval().half_width == pytest.approx(scipy_stats.t.ppf(0.975, 5) * error, abs=1e-12)
        p = 2 * scipy_stats.t.sf((np.mean(new) - 0.51) / error, 5)
        assert 2 * found.test.p_above() == pytest.approx(p, abs=1e-12)
    assert (found.over, found.seeds) == ("history", (6,))
    few = crossed.difference(new_SP, old_SP[:1], same_seeds=False, over="history")
    assert math.isnan(few.test.interval().half_width)


@pytest.mark.parametrize(("runs", "kind"), [(3, "binary"), (5, "two benchmarks"), (20, "continuous")])
def test_a_run_like_the_earlier_ones_is_outside_in_one_case_of_twenty(runs: int, kind: str) -> None:
    """Runs differ by .3 logits, or by .05; the problems are the same for all runs of a history."""
    random = np.random.default_rng(runs)
    stratum_P = np.repeat([0, 1], [80, 20]) if kind == "two benchmarks" else None
    outside = []
    for _ in range(TRIALS):
        level_P, run_S = random.normal(size=100), random.normal(size=(runs + 1, 1))
        chance_SP = 1 / (1 + np.exp(-level_P - 0.3 * run_S))
        score_SP = (random.random(chance_SP.shape) < chance_SP).astype(float)
        if kind == "continuous":
            score_SP = 5 + level_P + 0.05 * run_S + 0.2 * random.normal(size=chance_SP.shape)
        found = crossed.difference(score_SP[:1], score_SP[1:], stratum_P, same_seeds=False, over="history")
        outside.append(2 * min(found.test.p_above(), found.test.p_below()) <= 0.05)
    # 1,000 trials at level .05 are within .037 to .064 in 19 of 20 cases.
    assert 0.03 <= np.mean(outside) <= 0.065
