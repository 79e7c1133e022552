"""All figures from made-up journals: common properties, and the numbers of the paper's figures."""

import functools
import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from mcpo_cli.config.plan import Plan, PlannedRun, from_suite
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.product import Product
from mcpo_cli.report import artifacts
from tests.fakes import write_runs

FIGURES = [name for name, artifact in artifacts.registry().items() if ".figures." in artifact.build.__module__]
SUITES = artifacts.suites(FIGURES)
PROBED, BARE = (0, 1), (7,)
"""Seeds of runs with all rows, and of runs without those of probes."""


@functools.cache
def _all(suite: str) -> Plan:
    """Three steps of 8 prompts with 4 rollouts, every probe at each of them."""
    settings = ["scale=smoke", "seed=0,1,7", "probe.panel_every=1", "probe.gradients_every=1"]
    return from_suite(suite, settings, f"mcpo reproduce {suite}")


def _plan(suite: str, seeds: tuple[int, ...] = PROBED) -> Plan:
    return Plan(suite, "", tuple(run for run in _all(suite).runs if run.spec.seed in seeds))


@pytest.fixture(scope="module", autouse=True)
def home(module_home: Path) -> Path:
    """The runs of every suite that a figure needs."""
    for seeds in (PROBED, BARE):
        runs = {run.spec.run_id: run for suite in SUITES for run in _plan(suite, seeds).runs}
        write_runs(Plan("", "", tuple(runs.values())), probed=seeds == PROBED)
    return module_home


@functools.cache
def _runs(suite: str, seeds: tuple[int, ...]) -> Runs:
    return Runs(_plan(suite, seeds))


def _built(name: str, seeds: tuple[int, ...], *, fresh: bool = False) -> Product:
    """fresh: with new frames."""
    artifact, runs = artifacts.registry()[name], _runs.__wrapped__ if fresh else _runs
    return artifact.build({suite: runs(suite, seeds) for suite in artifact.needs})


@functools.cache
def _product(name: str, seeds: tuple[int, ...] = PROBED) -> Product:
    return _built(name, seeds)


def _rows(home: Path, run: PlannedRun, kind: str) -> list[dict[str, Any]]:
    """The rows, read without any code of the project."""
    files = sorted(
        (home / "runs" / run.spec.run_id / "attempt_1").glob(f"{kind}.jsonl" if kind == "metrics" else f"{kind}/*")
    )
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _by_arm(plan: Plan) -> dict[tuple[str, str], list[PlannedRun]]:
    found = defaultdict(list)
    for run in plan.runs:
        found[run.spec.model.name, run.arm].append(run)
    return found


@pytest.mark.parametrize("seeds", [PROBED, pytest.param(BARE, marks=pytest.mark.slow)], ids=["probed", "bare"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (not name.startswith("fig"))) for name in FIGURES]
)
def test_a_figure_shows_all_of_its_data_or_says_that_there_is_none(name: str, seeds: tuple[int, ...]) -> None:
    product = _product(name, seeds)
    words = " ".join([product.title, product.sentence, *product.notes])
    assert product.sentence.endswith(".")
    assert "nan" not in words.split()
    assert ("No run recorded" in product.sentence) == product.data.empty
    assert product.figure is not None
    # The layout takes most of the time and does not change limits.
    product.figure.set_layout_engine("none")
    product.figure.draw_without_rendering()
    for axes in product.figure.axes:
        low, high = sorted(axes.get_ylim())
        room = 1e-6 * (high - low)
        for line in axes.get_lines():
            drawn = np.asarray(line.get_ydata(), dtype=float)
            drawn = drawn[np.isfinite(drawn)]
            assert ((drawn >= low - room) & (drawn <= high + room)).all(), f"cut: {line.get_label()}"


METRICS = {
    "fig2a": ("mastery/mastered", "share"),
    "fig5a": ("mastery/mastered", "share"),
    "fig5b": ("mastery/all_wrong", "share"),
    "fig6": ("train/entropy", "entropy"),
    "effective-sample": ("weight/effective_sample", "rollouts"),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_the_journals(name: str, home: Path) -> None:
    metric, column = METRICS[name]
    product, plan = _product(name), _plan(*artifacts.registry()[name].needs, PROBED)
    raw = {
        planned.spec.run_id: [row["metrics"][metric] for row in _rows(home, planned, "metrics")]
        for planned in plan.runs
    }
    assert {run: rows[column].tolist() for run, rows in product.data.groupby("run_id")} == raw


def _cohorts(rows: list[dict[str, Any]]) -> dict[int, list[tuple[float, float | None]]]:
    """Accuracy of each step's mastered prompts under the same policy and under the next one, if there is one."""
    rolls = {(row["origin"], row["prompt"], row["step"]): row["c"] / row["n"] for row in rows if row["origin"]}
    found = defaultdict(list)
    for (origin, prompt, step), accuracy in rolls.items():
        if step == origin:
            found[origin].append((accuracy, rolls.get((origin, prompt, origin + 1))))
    return found


NEXT_STEP = {"fig2b": ["DAPO w/o filter"], "fig7": ["DAPO w/o filter", "MCPO"]}
"""Both figures show runs without a filter (Section 4.1)."""


@pytest.mark.parametrize("name", NEXT_STEP)
def test_next_step_accuracy_and_its_control(name: str, home: Path) -> None:
    product, plan = _product(name), _plan(*artifacts.registry()[name].needs, PROBED)
    shown = [run for run in plan.runs if run.arm in NEXT_STEP[name]]
    drawn = product.data.set_index(["run_id", "step"])
    for run in shown:
        for step, pairs in _cohorts(_rows(home, run, "rerolls")).items():
            row = drawn.loc[(run.spec.run_id, step)]
            both = [(control, then) for control, then in pairs if then is not None]
            assert row["same_policy"] == pytest.approx(mean(control for control, _ in pairs))
            if both:
                assert row["accuracy_lag_1"] == pytest.approx(mean(then for _, then in both))
                assert row["gap_lag_1"] == pytest.approx(mean(control - then for control, then in both))
            else:
                assert math.isnan(row["gap_lag_1"])
    assert len(drawn) == sum(len(_cohorts(_rows(home, run, "rerolls"))) for run in shown)


WEIGHTS = {
    "fig3b": {arm: lambda p: math.sqrt(p * (1 - p)) for arm in ("w/o ReWeight", "DAPO w/o filter", "DAPO")},
    "fig4": {
        arm: lambda p: math.sqrt(p * (1 - p)) if p <= 0.5 else 0.5 * (p < 1)
        for arm in ("MCPO", "w/o Hinge-KL", "w/o Hinge-KL + filter")
    },
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_query_weights_are_pooled_over_the_prompts_of_all_seeds(name: str, home: Path) -> None:
    product, plan = _product(name), _plan("table2", PROBED)
    assert product.data["arm"].unique().tolist() == list(WEIGHTS[name])
    theory = product.data[product.data["source"] == "theory"]
    for arm, p, weight in theory[["arm", "p", "weight"]].itertuples(index=False):
        assert weight == pytest.approx(WEIGHTS[name][arm](p), abs=1e-6)
    drawn = {str(one.get_label()): one.lines[0] for one in product.figure.axes[0].containers}
    for (_, arm), runs in _by_arm(plan).items():
        if arm not in WEIGHTS[name]:
            continue
        found = defaultdict(list)
        for run in runs:
            for row in _rows(home, run, "gradients"):
                if row["p"] < 1:
                    found[row["p"]].append(row["weight"])
        means = {p: mean(values) for p, values in sorted(found.items())}
        line = drawn[f"{arm}: gradients"]
        assert line.get_xdata().tolist() == list(means)
        assert line.get_ydata().tolist() == pytest.approx(list(means.values()))
        off = max(abs(weight - WEIGHTS[name][arm](p)) for p, weight in means.items())
        numbers = f"{WEIGHTS[name][arm](0.75):.3f}, 0.500, {off:.4f}, {sum(map(len, found.values()))}"
        assert f"{arm} (toy-s) {numbers}" in product.sentence


def test_the_schematic_has_the_methods_own_weights() -> None:
    product = _product("fig1")
    rows = product.data.set_index(["method", "p"])
    assert rows.loc[("DAPO", 15 / 16), "weight"] == pytest.approx(math.sqrt(15) / 16)
    assert rows.loc[("MCPO", 15 / 16), "weight"] == pytest.approx(0.5)
    assert rows.loc[("DAPO", 1.0), ["weight", "what"]].tolist() == [0.0, "dropped by the filter"]
    assert rows.loc[("MCPO", 1.0), "what"] == "drift beyond 0.01 nats penalised (hinge-KL)"
    assert rows.loc[("MCPO", 0.0), "what"] == "kept in the batch, no gradient"
    assert rows.loc[("MCPO", 0.9375), "what"] == "weight stays at 0.5"
