"""The saving by pairs against independent runs: by hand, simulated, and the definition of the experiment."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mcpo_study.analysis.fork_variance import __main__ as fork_variance
from mcpo_study.analysis.fork_variance.__main__ import Reduction, reduction
from scipy import stats as scipy_stats

from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert


def test_the_ratio_is_of_variances() -> None:
    """The differences are 1 and -1, whose variance over six pairs is 1.2."""
    a = np.array([1.0, 2, 3, 4, 5, 6])
    b = a + np.array([1.0, -1, 1, -1, 1, -1])
    found = reduction(a, b)
    assert found.ratio == pytest.approx((a.var(ddof=1) + b.var(ddof=1)) / 1.2)
    assert found.low < found.ratio < found.high
    with pytest.raises(ValueError, match="at least 6"):
        reduction(a[:5], b[:5])
    with pytest.raises(ValueError, match="do not differ"):
        reduction(a, a)


def test_the_interval_has_the_ratios_that_pitman_and_morgans_test_keeps() -> None:
    """At a bound of F, s / sqrt(F) + d and s / sqrt(F) - d correlate just as much as the test allows."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=9), rng.normal(size=9)
    found, total, difference = reduction(a, b), a + b, b - a
    for bound in (found.low, found.high):
        scaled = total / math.sqrt(2 * bound - 1)
        assert scipy_stats.pearsonr(scaled + difference, scaled - difference).pvalue == pytest.approx(0.05)


@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_the_interval_of_the_ratio_covers(shared: float) -> None:
    """12 pairs of normal runs, a share of whose variance is common: the true ratio is 1 / (1 - share)."""
    rng, inside, draws = np.random.default_rng(4), 0, 2000
    for _ in range(draws):
        common = math.sqrt(shared) * rng.normal(size=12)
        a, b = (common + math.sqrt(1 - shared) * rng.normal(size=12) for _ in range(2))
        found = reduction(a, b)
        inside += found.low <= 1 / (1 - shared) <= found.high
    assert 0.935 < inside / draws < 0.965, "three standard errors of 2000 draws"


def test_the_table_pairs_by_seed() -> None:
    score = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    parents = [{"seed": seed, "arm": "", "at": 0, "score": value} for seed, value in enumerate(score)]
    forks = [
        {"seed": seed, "arm": "x", "at": 5, "score": value + (0.01 if seed % 2 else 0.03)}
        for seed, value in reversed([*enumerate(score)])
    ]
    (row,) = fork_variance.table(pd.DataFrame([*parents, *forks]), 0.95)
    assert (row["arm"], row["at"], row["pairs"]) == ("x", 5, 6)
    assert row["difference"] == pytest.approx(0.02)
    assert row["paired"] == pytest.approx(0.01 * math.sqrt(1.2))
    assert row["saved"].ratio > 100


def test_the_page_has_the_numbers_of_the_committed_scores() -> None:
    study = convert(fork_variance.Study, read_yaml(fork_variance.FILE), "file")
    rows = fork_variance.table(pd.read_csv(fork_variance.ROWS, keep_default_na=False), 1 - 0.05 / len(study.hypotheses))
    page = (Path(__file__).parents[2] / "docs" / "branching.md").read_text(encoding="utf-8")
    for row in rows:
        (cells,) = re.findall(rf"^\| {row['arm']} \| {row['at']} \| (.*) \|$", page, re.MULTILINE)
        quoted = [float(number) for number in re.findall(r"[\d.]+", cells)]
        saved = row["saved"]
        assert quoted == pytest.approx([row["apart"], row["paired"], saved.ratio, saved.low, saved.high], rel=0.03)


def test_the_definition_names_its_runs(mcpo_home: Path) -> None:
    study = convert(fork_variance.Study, read_yaml(fork_variance.FILE), "file")
    made = fork_variance.parents(study)
    assert [cell.spec.seed for cell in made.cells] == list(range(study.seeds))
    assert len({cell.spec.base_id for cell in made.cells}) == study.seeds
    runs = fork_variance.children(study, made)
    assert set(runs) == {(arm, at) for arm in study.arms for at in (0, *study.at)}
    for (_, at), own in runs.items():
        assert [spec.seed for spec in own] == list(range(study.seeds))
        assert all(bool(spec.fork) == bool(at) for spec in own)
        assert not {spec.run_id for spec in own} & {cell.spec.run_id for cell in made.cells}
    known = {(one.arm, one.at, one.ratio) for one in study.hypotheses}
    assert known <= {(arm, at, "forked" if at else "seeds") for arm, at in runs}


def test_a_verdict_is_that_of_the_interval() -> None:
    one = fork_variance.Hypothesis("V", "", "x", 5, "forked", 1)
    words = [fork_variance.verdict(one, Reduction(2, low, high)) for low, high in ((1.1, 3), (0.5, 3), (0.2, 0.9))]
    assert words == ["supported", "unresolved", "contradicted"]
