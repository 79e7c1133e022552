"""Aggregates over benchmarks from made-up journals, against rliable, the raw scores and the paper's own table."""

from pathlib import Path

import numpy as np
import pytest
from rliable import metrics

from mcpo_cli.analysis import artifacts
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.statistics import power
from tests.fakes import write_runs


def build(home: Path, *overrides: str) -> tuple[dict[str, Plan], artifacts.Built]:
    suites = ("table1", "table2")
    plans = {suite: from_suite(suite, ["scale=smoke", *overrides], f"mcpo reproduce {suite}") for suite in suites}
    for plan in plans.values():
        write_runs(Plan("", "", tuple(cell for cell in plan.cells if not run_dir(cell.spec.run_id).exists())))
    return plans, artifacts.Workshop(plans, home / "reports", "smoke").build("aggregates")


def test_numbers_are_those_of_rliable_and_of_the_raw_scores(mcpo_home: Path) -> None:
    plans, built = build(mcpo_home)
    frame = Runs(plans["table1"]).eval()
    frame["score"] = frame["c"] / frame["n"]
    # Seeds x (models and tiers), as rliable takes them.
    table = frame.pivot_table(index=["arm", "seed"], columns=["model", "tier"], values="score")
    dapo, mcpo = (table.loc[arm].to_numpy() for arm in ("DAPO", "MCPO"))
    row = next(row for row in built.to_json()["rows"] if row["metric"] == "pass@1" and row["arm"] == "MCPO")
    assert (row["suite"], row["seeds"]) == ("table1", 3)
    assert row["mean"] == pytest.approx(metrics.aggregate_mean(mcpo))
    assert row["iqm"] == pytest.approx(metrics.aggregate_iqm(mcpo))
    assert row["better"] == pytest.approx(metrics.probability_of_improvement(mcpo, dapo))
    assert row["better_low"] < row["better"] < row["better_high"]
    diff_S = (mcpo - dapo).mean(axis=1)
    assert (row["difference"], row["sd"]) == pytest.approx((diff_S.mean(), diff_S.std(ddof=1)))
    assert power.power(row["detectable"], row["sd"], 3) == pytest.approx(0.8, abs=1e-6)
    assert row["published"] == pytest.approx(np.mean([0.0458, 0.0250, 0.0218, 0.0291, 0.0251, 0.0157]))
    assert row["seeds_for_published"] == power.seeds_needed(row["published"], row["sd"])


def test_each_arm_stands_against_the_baseline_of_its_table(mcpo_home: Path) -> None:
    _, built = build(mcpo_home, "model=toy-s")
    rows = built.to_json()["rows"]
    assert [
        (row["suite"], row["arm"]) for row in rows if row["metric"] == "best@8" and row["published"] is not None
    ] == [
        ("table1", "MCPO"),
        ("table2", "w/o Hinge-KL"),
        ("table2", "w/o ReWeight"),
        ("table2", "DAPO"),
    ]
    hinge = next(row for row in rows if (row["arm"], row["metric"]) == ("w/o Hinge-KL", "best@8"))
    assert hinge["published"] == pytest.approx(np.mean([0.6563 - 0.7012, 0.4881 - 0.5073, 0.9716 - 0.9837]))


def test_one_seed_has_no_interval_and_no_power(mcpo_home: Path) -> None:
    _, built = build(mcpo_home, "model=toy-s", "seed=0")
    row = next(row for row in built.to_json()["rows"] if row["arm"] == "MCPO")
    assert row["mean"] > 0
    assert [row[name] for name in ("mean_low", "better_high", "difference_low", "sd", "detectable")] == [None] * 5
    assert "the difference that these seeds can detect is unknown" in built.record["sentence"]
    assert "n=1" in built.text()
