"""The paper's numbers: as printed in its tables and in the audit, and its settings against those of runs."""

from collections.abc import Mapping

import pytest
import yaml
from mcpo_study.analysis import EXPERIMENTS
from mcpo_study.analysis.paper import settings, tables
from mcpo_study.analysis.paper.published import paper

from mcpo_cli.config.plan import Plan, from_suite

PAPER = paper()
PRINTED = {
    "table1": """
        Qwen3-8B-Base DAPO 0.4000 0.6483 0.3083 0.4824 0.8438 0.9706
        Qwen3-8B-Base MCPO 0.4458 0.7012 0.3333 0.5073 0.8656 0.9837
        Qwen3-14B-Base DAPO 0.5292 0.7620 0.4041 0.5980 0.8937 0.9880
        Qwen3-14B-Base MCPO 0.5583 0.7753 0.4292 0.6440 0.9094 0.9806
    """,
    "table2": """
        Qwen3-8B-Base MCPO 0.4458 0.7012 0.3333 0.5073 0.8656 0.9837
        Qwen3-8B-Base w/o Hinge-KL 0.4042 0.6563 0.3167 0.4881 0.8406 0.9716
        Qwen3-8B-Base w/o ReWeight 0.4417 0.6812 0.3375 0.5071 0.8625 0.9751
        Qwen3-8B-Base DAPO 0.4000 0.6483 0.3083 0.4824 0.8438 0.9706
    """,
}
"""Both tables as the paper prints them, columns from left to right."""
COLUMNS = [(name, metric) for name in ("AIME24", "AIME25", "AMC23") for metric in ("pass@1", "pass@8")]


@pytest.mark.parametrize("table", PRINTED)
def test_the_published_tables_come_out_unchanged(table: str) -> None:
    found = [
        " ".join([model, arm, *(f"{numbers[column]:.4f}" for column in COLUMNS)])
        for model, arm, numbers in tables.published_rows(PAPER, table)
    ]
    assert found == [line.strip() for line in PRINTED[table].strip().splitlines()]


def test_the_audit_has_the_numbers_of_the_paper() -> None:
    evaluation = PAPER["settings"]["evaluation"]
    rows = {(row["model"], row["arm"]): row for table in PAPER["tables"].values() for row in table["rows"]}
    audit = yaml.safe_load((EXPERIMENTS / "audit" / "audit.yaml").read_text())
    assert len(audit["rows"]) == 2 * sum(arm != "MCPO" for _, arm in rows) * len(evaluation["benchmarks"])
    for pair in audit["rows"]:
        assert pair["a"] == rows[pair["model"], "MCPO"][pair["benchmark"]]
        assert pair["b"] == rows[pair["model"], pair["against"]][pair["benchmark"]]
        assert pair["problems"] == evaluation["benchmarks"][pair["benchmark"]]
    assert audit["samples"] == evaluation["samples_per_problem"]


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
