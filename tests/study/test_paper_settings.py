"""Settings of runs against the paper's: all lines of the paper are present, and deviations are marked."""

from collections.abc import Mapping

import pytest
from mcpo_study.analysis.paper import settings

from mcpo_cli.config.plan import Plan, from_suite

ROWS = Mapping[str, tuple[str, str, str]]


def rows(plans: Mapping[str, Plan]) -> ROWS:
    """Setting -> here, paper, mark."""
    found = settings.grid(plans)
    assert found.labels == len(found.header) == 4
    return {name: (here, paper, mark) for name, here, paper, mark in found.rows}


def suites(*overrides: str) -> dict[str, Plan]:
    return {name: from_suite(name, overrides, "") for name in ("table1", "table2", "mastery")}


@pytest.fixture(scope="module")
def toy() -> ROWS:
    return rows(suites())


def test_every_line_of_the_paper_has_its_row(toy: ROWS) -> None:
    published = settings.published()
    assert set(published) <= set(settings.HERE)
    assert {name.replace("_", " ") for name in published} <= set(toy)
    silent = {name for name, (_, paper, _) in toy.items() if paper == "not stated"}
    ours = {"global steps", "rollout temperature", "weight decay", "gradient clipping"}
    assert silent == ours | {"evaluation, seeds"}


def test_the_papers_scale_deviates_in_nothing() -> None:
    found = rows(suites("scale=paper"))
    assert {name: row for name, row in found.items() if row[-1]} == {}
    assert found["base models"][0] == "Qwen3-8B-Base (table1, table2, mastery); Qwen3-14B-Base (table1)"
    assert found["learning rate"][:2] == ("1e-06", "1e-06")
    assert found["evaluation, benchmarks"][:2] == ("AIME24: 30, AIME25: 30, AMC23: 40",) * 2
    assert found["dynamic sampling, DAPO"][:2] == ("on", "on")
    assert found["dynamic sampling, MCPO"][:2] == ("off", "off")


def test_a_stand_in_deviates_where_it_does(toy: ROWS) -> None:
    assert {name for name, row in toy.items() if row[-1] == "deviates"} == {
        "framework",
        "base models",
        "supervised fine tuning",
        "training data",
        "learning rate",
        "learning rate schedule",
        "mini batch prompts",
        "max response tokens",
        "overlong cache tokens",
        "evaluation, benchmarks",
        "evaluation, max response tokens",
    }
    assert toy["mini batch prompts"] == ("16", "64", "deviates")
    assert toy["learning rate schedule"][0] == "constant, 5 global steps of warm-up"
    assert toy["hinge delta"] == ("0.01", "0.01", "")
    assert toy["evaluation, seeds"][0] == "0, 1, 2"
