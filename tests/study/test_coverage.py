"""Coverage, level and power of comparisons: the committed records of the simulation, and a part of it again."""

import pandas as pd
import pytest
from mcpo_study.analysis.coverage import __main__ as coverage
from mcpo_study.analysis.coverage.__main__ import Design

from mcpo_cli.compare.pairs import FEW_PROBLEMS, FEW_SAMPLES, FEW_SEEDS

AGAIN = (
    Design(3, (200,), 8),
    Design(5, (200,), 4, missing=0.15),
    Design(10, (60,), 4, missing=0.15, same_seeds=False),
    Design(30, (20,), 8),
    Design(3, (30, 30, 100), 8),
    Design(1, (200,), 1, run=0.0),
    Design(5, (100,), 8, metric="pass@4"),
    Design(1, (100,), 8, run=0.0, metric="maj@4"),
)


def limited(design: Design) -> bool:
    """True if `mcpo compare` names a limit; few problems differ also at an accuracy of .95 and more."""
    problems = sum(design.problems)
    few = design.seeds * problems * design.samples <= FEW_SAMPLES or problems <= FEW_PROBLEMS
    decided_by_few = problems <= FEW_PROBLEMS or abs(design.level) >= 4
    return (few or design.seeds <= FEW_SEEDS) if design.seeds > 1 else decided_by_few


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return pd.read_csv(coverage.RECORDS).set_index("name")


def test_the_page_shows_the_records_of_every_design(records: pd.DataFrame) -> None:
    shown = coverage.PAGE.read_text(encoding="utf-8").partition(coverage.BEGIN)[2]
    assert shown.strip() == coverage.page(records.reset_index()).strip()
    assert [design.name for design in coverage.DESIGNS] == list(records.index[: len(coverage.DESIGNS)])
    assert (records["trials"] == coverage.TRIALS).all()


def test_recorded_intervals_cover_what_they_promise(records: pd.DataFrame) -> None:
    for design in coverage.DESIGNS:
        row = records.loc[design.name]
        if not limited(design):
            assert row[["difference", "shifted", "mean"]].dropna().between(0.93, 0.97).all(), design.name
            assert row["power"] >= 0.75, design.name
        assert row["difference"] > 0.925, design.name  # the test keeps its level everywhere
    looks = records.iloc[len(coverage.DESIGNS) :]
    assert (looks["difference"] >= 0.95 - 0.015).all()


@pytest.mark.slow
@pytest.mark.parametrize("design", AGAIN, ids=lambda design: design.name)
def test_intervals_cover_and_tests_find_what_they_promise(design: Design) -> None:
    """400 trials: standard errors of .011 and, of the power, .02."""
    found = coverage.simulate(design, 400)
    least = 0.90 - 3 * 0.015 if limited(design) else 0.93 - 3 * 0.011
    assert min(found.difference, found.shifted) >= least
    assert not found.mean < least
    assert max(found.difference, found.shifted) <= 0.97 + 3 * 0.009
    assert found.power >= (0.6 if limited(design) else 0.75) - 3 * 0.02


@pytest.mark.slow
@pytest.mark.parametrize("looks", coverage.LOOKS)
def test_declared_looks_keep_the_level_on_growing_logs(looks: int) -> None:
    assert coverage.looks(looks, 1000) <= 0.05 + 3 * 0.007
