"""Numbers of experiments/retention/retention.md that no query of its findings can compute, from the rows of runs."""

import re

import pandas as pd
import pytest
from mcpo_study.analysis import EXPERIMENTS
from scipy import stats

STUDY = EXPERIMENTS / "retention"
PAGE = (STUDY / "retention.md").read_text(encoding="utf-8")


def of_bases(file: str, statistic: str, arm: str, baseline: str) -> tuple[float, float, float]:
    """Mean of the base policies' mean differences, half of its 95 % interval, and p."""
    rows = pd.read_csv(STUDY / "results" / file)
    value = rows[rows["block"] == "run"].pivot(index=["base_seed", "seed"], columns="arm", values=statistic)
    mean_B = (value[arm] - value[baseline]).groupby("base_seed").mean()
    assert len(mean_B) == 6
    half = stats.t.ppf(0.975, 5) * mean_B.sem()
    return float(mean_B.mean()), float(half), float(stats.ttest_1samp(mean_B, 0).pvalue)


def test_the_kl_against_the_smaller_step_does_not_hold_with_base_policies_as_units() -> None:
    (said,) = re.findall(r"\*\*R10 does not\*\* \(\+([.\d]+) ± ([.\d]+), p ([.\d]+)\)", PAGE)
    found = of_bases("retention-outcomes.csv", "pass@1", "KL to the base", "smaller step")
    assert found[2] > 0.05
    assert [float(number) for number in said] == pytest.approx(found, abs=0.005)


def test_what_the_hinge_forgets_less_is_the_difference_of_the_rows() -> None:
    rows = pd.read_csv(STUDY / "results" / "retention-outcomes.csv")
    (row,) = rows[(rows["arm"] == "hinge") & (rows["statistic"] == "forgotten")].to_dict("records")
    (said,) = re.findall(r"forgotten ([.\d]+) ± ([.\d]+) fewer times per run", PAGE)
    half = (row["difference_high"] - row["difference_low"]) / 2
    assert [float(number) for number in said] == pytest.approx([-row["difference"], half], abs=0.05)
