"""Runs of 10 000 steps, numbers that are none, clocks that go back, and homes with long and foreign names."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config import plan as plans
from mcpo_cli.config.load import load
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.config.workload import eval_steps
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt, state
from mcpo_cli.runs.journal import FinalSteps, Journal, read_json, write_json
from mcpo_cli.scheduling import estimate
from mcpo_cli.scheduling.progress import Tracker, final_metrics
from tests.cli.conftest import InProcess
from tests.errors import refused

STEPS = 10_000
MCPO = (sys.executable, "-m", "mcpo_cli.main")


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "MCPO_HOME": str(home), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def mcpo(*words: str, home: Path) -> str:
    """What the command prints."""
    done = subprocess.run([*MCPO, *words], env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def strict(text: str) -> Any:
    """JSON as its standard has it: without NaN."""

    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def make(*overrides: str) -> Plan:
    return plans.from_overrides(["scale=smoke", "compute.tracking_uri=offline", *overrides])


def begin(spec: RunSpec, start: int = 0) -> Attempt:
    write_json(run_dir(spec.run_id) / "spec.json", spec.to_dict())
    return Attempt(run_dir(spec.run_id), spec, start)


def record(attempt: Attempt, spec: RunSpec, step: int, time: float, **more: float) -> None:
    """One step, and the evaluation after it where there is one."""
    if step:
        metrics = {"train/accuracy": step / spec.train.steps, **more}
        attempt.journal.step({"step": step, "time": time, "metrics": metrics})
    if step in eval_steps(spec):
        rows = [
            {"step": step, "tier": tier, "problem": str(i), "n": spec.eval.samples, "c": 2}
            for tier, size in spec.task.tier_sizes(spec.eval.problems).items()
            for i in range(size)
        ]
        attempt.journal.rows("eval", step, rows)


def test_ten_thousand_steps(mcpo_home: Path) -> None:
    plan = make(f"train.steps={STEPS}", "eval.every=500")
    spec = plan.cells[0].spec
    attempt = begin(spec)
    for step in range(STEPS // 2):
        record(attempt, spec, step, float(step))
    attempt.durable(STEPS // 2 - 1)
    journal = Journal(run_dir(spec.run_id))
    tracker, store = Tracker(journal.run_dir, spec), FinalSteps(journal, 0)
    tracker.warnings()
    assert tracker.read().step == STEPS // 2 - 1
    sent = [row["step"] for row in store.read()]
    for step in range(STEPS // 2, STEPS + 1):
        record(attempt, spec, step, float(step))
    for step in range(1, STEPS + 1, 7):
        (attempt.folder / "groups").mkdir(exist_ok=True)
        (attempt.folder / "groups" / f"step_{step:06d}.jsonl").write_text("{}\n")
    attempt.durable(STEPS)
    attempt.end("done")
    assert tracker.read().step == STEPS
    sent += [row["step"] for row in store.read()]
    lost, wrong = STEPS - len(set(sent)), int(sent != sorted(sent)) + len(sent) - len(set(sent))
    assert state(journal.run_dir, spec) == "done"
    assert final_metrics(journal.run_dir)["train/accuracy"] == 1
    assert len(Runs(plan).steps()) == STEPS
    shown = strict(mcpo("runs", "show", spec.run_id, "--json", home=mcpo_home))
    assert shown["state"] == "done"
    assert f"attempt_1/groups/step_*.jsonl ({len(range(1, STEPS + 1, 7))})" in shown["files"]
    assert len(shown["files"]) < 20
    assert (lost, wrong) == (0, 0)


def test_numbers_that_are_none(mcpo_home: Path) -> None:
    plan = make()
    spec = plan.cells[0].spec
    attempt = begin(spec)
    strange = {"a/nan": math.nan, "a/inf": math.inf, "a/minus": -math.inf}
    for step in range(spec.train.steps + 1):
        record(attempt, spec, step, float(step), **strange)
    attempt.end("done")
    found = Journal(run_dir(spec.run_id)).steps()[-1]["metrics"]
    assert math.isnan(found.pop("a/nan"))
    assert found == {"train/accuracy": 1.0, "a/inf": math.inf, "a/minus": -math.inf}
    frame = Runs(plan).steps()
    assert frame["a/nan"].isna().all()
    assert (frame["a/inf"] == math.inf).all()
    text = mcpo("runs", "show", spec.run_id, home=mcpo_home)
    assert [line.split() for line in text.splitlines() if "a/" in line and "attempt" not in line] == [
        ["a/inf", "inf"],
        ["a/minus", "-inf"],
        ["a/nan", "nan"],
    ]
    metrics = strict(mcpo("runs", "show", spec.run_id, "--json", home=mcpo_home))["metrics"]
    wrong = sum(math.isfinite(float(metrics[name])) for name in strange)
    assert wrong == 0


def test_a_clock_that_is_set_back(mcpo_home: Path) -> None:
    """Between rows and between attempts: steps keep their order, and no duration is negative."""
    plan = make("train.steps=6")
    spec = plan.cells[0].spec
    first = begin(spec)
    for step, moment in enumerate((1000.0, 1001.0, 400.0, 401.0)):
        record(first, spec, step, moment)
    first.durable(2)
    second = begin(spec, start=2)
    for step, moment in ((3, 90.0), (4, 80.0), (5, 70.0), (6, 60.0)):
        record(second, spec, step, moment)
    second.end("done")
    for attempt in (first, second):
        path = attempt.folder / "status.json"
        write_json(path, {**read_json(path), "started": 5000.0, "updated": 10.0})
    rows = Journal(run_dir(spec.run_id)).steps()
    assert [(row["step"], row["time"]) for row in rows] == [
        (1, 1001.0),
        (2, 400.0),
        (3, 90.0),
        (4, 80.0),
        (5, 70.0),
        (6, 60.0),
    ]
    assert state(run_dir(spec.run_id), spec) == "done"
    text = mcpo("runs", "show", spec.run_id, home=mcpo_home)
    durations = [line.rsplit(", ", 1)[1] for line in text.splitlines() if ", from step " in line]
    estimator = estimate.Estimator(mcpo_home)
    assert estimator.basis([spec]) == "from the cost model"
    assert estimator.seconds(spec) > 0
    assert sum(one != "0:00" for one in durations) == 0


@pytest.mark.slow
def test_a_home_with_a_name_that_is_not_ascii(tmp_path: Path, here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    home, settings = tmp_path / "Zwölf Größen 模型", ["scale=smoke", "warmup.target_accuracy=0", "--json"]
    (run,) = strict(mcpo("train", *settings, home=home))["runs"]
    assert run["state"] == "done"
    monkeypatch.setenv("MCPO_HOME", str(home))
    shown = strict(here("runs", "show", run["run_id"], "--json").stdout)
    assert shown["folder"] == str(home / "runs" / run["run_id"])
    assert len(shown["attempts"]) == 1
    assert strict(here("train", *settings).stdout)["runs"] == [run]


@pytest.mark.slow
def test_a_home_whose_path_is_too_long_for_sqlite(tmp_path: Path) -> None:
    """SQLite takes 512 characters: refused before anything starts, with what helps."""
    home = tmp_path.joinpath(*["x" * 200] * 5)
    done = subprocess.run([*MCPO, "train", "scale=smoke"], env=environment(home), capture_output=True, check=False)
    assert done.returncode == 2
    assert b"compute.tracking_uri=offline" in done.stderr


def test_names_of_models_stay_in_ascii() -> None:
    """They name folders, MLflow runs and lines of tables."""
    with refused("contradiction", "model.name"):
        load(['model.name="größe"'])
