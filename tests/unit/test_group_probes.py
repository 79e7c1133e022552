"""Probes of group rows and of the steps' metrics, on small journals with numbers computed by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli import measures, methods, tasks
from mcpo_cli.config.schema import RunSpec, Train
from tests import rows

G = 8
SPEC = RunSpec(methods.get("dapo"), tasks.get("arithmetic"), train=Train(rollouts=G))


def group(step: int, right: int, **more: float) -> rows.Row:
    return rows.group(step, right / G, f"{step} {right}", **more)


def find(
    name: str, folder: Path, groups: Sequence[rows.Row] = (), metrics: Sequence[dict[str, float]] = ()
) -> measures.Finding:
    """The probe's finding in a journal of these rows; metrics: one per step, from 1 on."""
    return measures.get(name).measure(SPEC, rows.journal(SPEC, {"groups": groups}, metrics, folder))


def numbers(table: Sequence[Mapping[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in table]


def test_histogram(tmp_path: Path) -> None:
    """Step 1: 0, 4, 8 of 8 correct; step 2: 8 of 8 and 3 of 8; p = 3/8 is in the middle third."""
    found = find("histogram", tmp_path, [group(1, 0), group(1, 4), group(1, 8), group(2, 8), group(2, 3)])
    assert {name: found.values[name] for name in ("prompts", "accuracy", "at_0", "at_1", "middle")} == pytest.approx(
        {"prompts": 5, "accuracy": 23 / 40, "at_0": 0.2, "at_1": 0.4, "middle": 0.4}
    )
    # Two steps are too few for an interval.
    assert "at_1_low" not in found.values
    shares = {row["right"]: row["share"] for row in found.tables["bins"]}
    assert shares == pytest.approx({0: 0.2, 1: 0, 2: 0, 3: 0.2, 4: 0.2, 5: 0, 6: 0, 7: 0, 8: 0.4})
    second = [row for row in found.tables["steps"] if row["step"] == 2]
    assert numbers(second, "p", "prompts", "share")[-1] == (1, 1, 0.5)


def test_the_middle_third_includes_its_ends(tmp_path: Path) -> None:
    spec = RunSpec(methods.get("dapo"), tasks.get("arithmetic"), train=Train(rollouts=9))
    journal = rows.journal(spec, {"groups": [rows.group(1, k / 9) for k in (2, 3, 6, 7)]}, folder=tmp_path)
    assert measures.get("histogram").measure(spec, journal).values["middle"] == 0.5


def test_composition(tmp_path: Path) -> None:
    """p = 1/2 is a minority prompt, 5/8 a majority-correct one."""
    found = find(
        "composition", tmp_path, [group(1, 8), group(1, 4), group(2, 5), group(2, 0), group(2, 0), group(2, 7)]
    )
    columns = ("step", "prompts", "mastered", "majority_correct", "minority", "all_wrong")
    assert numbers(found.tables["steps"], *columns) == [(1, 2, 0.5, 0, 0.5, 0), (2, 4, 0, 0.5, 0, 0.5)]
    assert found.values["mastered"] == pytest.approx(1 / 6)
    assert found.values["majority_correct"] == pytest.approx(2 / 6)


def test_entropy(tmp_path: Path) -> None:
    groups = [
        group(1, 8, entropy=0.2, entropy_right=0.2),
        group(1, 4, entropy=0.5, entropy_right=0.3, entropy_wrong=0.7),
        group(2, 2, entropy=0.8, entropy_right=0.5, entropy_wrong=1.0),
        group(2, 0, entropy=1.0, entropy_wrong=1.0),
    ]
    found = find("entropy", tmp_path, groups)
    assert {name: found.values[name] for name in ("entropy", "right", "wrong", "wrong_minus_right")} == pytest.approx(
        {"entropy": 0.625, "right": 1 / 3, "wrong": 0.9, "wrong_minus_right": 0.45}
    )
    first, second = found.tables["steps"]
    assert (first["entropy"], first["mastered"], first["minority"]) == pytest.approx((0.35, 0.2, 0.5))
    assert "all_wrong" not in first
    assert second["all_wrong"] == 1
    bins = {row["p"]: row for row in found.tables["accuracy"]}
    assert numbers(found.tables["accuracy"], "p", "prompts") == [
        ("0", 1),
        ("(0, 0.25]", 1),
        ("(0.25, 0.5]", 1),
        ("(0.5, 0.75]", 0),
        ("(0.75, 1)", 0),
        ("1", 1),
    ]
    assert bins["(0, 0.25]"]["wrong"] == 1
    assert "right" not in bins["0"]


def test_without_entropies_nothing_is_said(tmp_path: Path) -> None:
    assert find("entropy", tmp_path, [group(1, 8), group(2, 3)]).values == {}


def test_sanity(tmp_path: Path) -> None:
    metrics = [
        {"sanity/truncated": 0.1, "sanity/duplicates": 0.2, "train/accuracy": 0.5},
        {"sanity/truncated": 0.4, "sanity/logp_difference": 0.01},
        {"sanity/truncated": 0.3, "sanity/duplicates": 0.3},
    ]
    found = find("sanity", tmp_path, metrics=metrics)
    assert found.values["truncated"] == pytest.approx(0.8 / 3)
    assert found.values["truncated_worst"] == 0.4
    assert found.values["duplicates"] == 0.25
    assert found.values["logp_difference"] == 0.01
    assert found.values["warnings"] == 1
    assert "train/accuracy" not in found.tables["steps"][0]
    (warned,) = found.tables["warnings"]
    assert (warned["metric"], warned["first_step"], warned["steps"]) == ("sanity/truncated", 2, 2)
