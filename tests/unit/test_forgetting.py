"""The suite `forgetting` in its table, figure and verdicts, and selection's share of the drop, from planted losses."""

import functools
from pathlib import Path

import numpy as np
import pytest

from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Product
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.records import RerollRow
from mcpo_cli.report.artifacts import registry
from tests import fakes
from tests.fakes import has_hinge, write_runs

SAME = 0.98
LOSS = {"drift": 0.005, "skills-drift": 0.08, "over-driven": 0.2}
"""Accuracy that a step takes from a mastered prompt in each regime; the hinge prevents three quarters of that."""
SUITES = ("mastery", "forgetting")


def _plan(suite: str) -> Plan:
    overrides = ["scale=smoke", "seed=0,1,2", "train.steps=7", "train.prompts=64", "train.mini_batch=32"]
    probed = [] if suite == "mastery" else ["probe.lags=[0,1]", "probe.prompts=64"]
    return from_suite(suite, [*overrides, "probe.every=1", "probe.panel_every=0", *probed], "mcpo reproduce")


def _reroll(spec: RunSpec, step: int, origin: int, prompt: str, rng: np.random.Generator) -> RerollRow:
    n, later = 400, step > origin > 0
    loss = LOSS[spec.regime] * (0.25 if has_hinge(spec) else 1)
    c = int(rng.binomial(n, SAME - later * loss))
    return RerollRow(step=step, source="mastered", origin=origin, prompt=prompt, gold="1", n=n, c=c)


@pytest.fixture(scope="module", autouse=True)
def _home(module_home: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "_reroll", _reroll)
        for suite in SUITES:
            cells = tuple(cell for cell in _plan(suite).cells if not run_dir(cell.spec.run_id).exists())
            write_runs(Plan("", "", cells), probed=True)


@functools.cache
def _product(name: str) -> Product:
    artifact = registry()[name]
    assert artifact.section == "diagnostic"
    return artifact.build({suite: Runs(_plan(suite)) for suite in artifact.needs})


def test_the_table_has_what_was_planted_and_its_difference_to_the_baseline() -> None:
    data = _product("forgetting").data
    gaps = data[(data["block"] == "measured") & (data["statistic"] == "next-step gap")].set_index(["regime", "arm"])
    for regime in ("skills-drift", "over-driven"):
        for arm, share in (("DAPO w/o filter", 1), ("reweight only", 1), ("hinge only", 0.25), ("MCPO", 0.25)):
            row = gaps.loc[(regime, arm)]
            assert row["mean"] == pytest.approx(share * LOSS[regime], abs=0.006)
            assert row["low"] < row["mean"] < row["high"]
            if arm == "DAPO w/o filter":
                assert np.isnan(row["difference"])
            else:
                assert row["difference"] == pytest.approx((share - 1) * LOSS[regime], abs=0.008)


def test_the_hinge_gets_its_verdict_in_each_regime() -> None:
    product = _product("forgetting")
    verdicts = product.data[product.data["block"] == "verdict"].set_index(["statistic", "regime"])["verdict"]
    for regime in ("skills-drift", "over-driven"):
        for claim in ("hinge-retains", "mcpo-retains", "hinge-floor", "drop-is-drift"):
            assert verdicts[claim, regime] == "supported"
            assert f"{claim} supported" in product.sentence
        assert verdicts["reweight-retains", regime] == "unresolved"
    assert [grid.title for grid in product.grids[:2]] == ["skills-drift, toy-s", "over-driven, toy-s"]


def test_the_curve_of_retention_is_the_mean_over_windows_of_steps() -> None:
    product = _product("retention")
    hinge = product.data[product.data["arm"].isin(["hinge only", "MCPO"])]
    assert set(product.data["window"]) == {3, 8}
    assert hinge.groupby("regime")["gap_lag_1"].mean().to_dict() == {
        regime: pytest.approx(LOSS[regime] / 4, abs=0.006) for regime in ("skills-drift", "over-driven")
    }
    panels = [axes for axes in product.figure.axes if axes.get_title()] if product.figure else []
    assert [axes.get_title() for axes in panels] == ["skills-drift", "over-driven"]


def test_selections_share_is_shown_for_every_regime() -> None:
    product = _product("selection")
    shares = product.data.groupby("regime")["selection_share"].mean()
    for regime, loss in LOSS.items():
        assert shares[regime] == pytest.approx((1 - SAME) / (1 - SAME + loss), abs=0.08)
        assert f"(toy-s, {regime})" in product.sentence
    assert shares.sort_values().index.tolist() == ["over-driven", "skills-drift", "drift"]
