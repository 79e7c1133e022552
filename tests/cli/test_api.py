"""`mcpo_cli.api`: findings, defaults of suites, choices of runs, callbacks; test_arms.py compares comparisons."""

from pathlib import Path

import numpy as np
import pytest

from mcpo_cli import api
from mcpo_cli.config.plan import from_suite
from mcpo_cli.scheduling import scheduler
from tests.cli.conftest import InProcess
from tests.cli.test_scheduler import WORKER
from tests.store_runs import made_up

WORDS = ("table1", "scale=smoke", "model=toy-s")


@pytest.fixture(scope="module")
def runs(module_home: Path) -> None:
    made_up(from_suite(WORDS[0], WORDS[1:], ""), probed=True)


@pytest.fixture
def trained(
    runs: None, module_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcess:
    """`mcpo` in this process, in a home where the runs of table1 are done."""
    found = InProcess(module_home, monkeypatch, capsys)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "offline")
    return found


def test_findings_are_those_of_the_verb(trained: InProcess) -> None:
    rows = trained.json("probe", "mastery", *WORDS)["runs"]
    values = api.probe("mastery", *WORDS).set_index("run_id")["gap_lag_1"]
    assert values.to_dict() == pytest.approx({row["run_id"]: row["values"]["gap_lag_1"] for row in rows})
    assert np.isfinite(values).all()


def test_a_suite_s_own_baseline_and_metric_are_the_default(trained: InProcess, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    arms = "arms: {a: [method=mcpo], b: [method=dapo]}\nsweep: {model: [toy-s], seed: [0, 1, 2]}"
    mine.write_text(f"{arms}\nbaseline: b\nmetric: best@8")
    found = api.compare(str(mine), "scale=smoke")
    assert (found.baseline, found.metric) == ("b", "best@8")
    assert api.compare(str(mine), "scale=smoke", baseline="a", metric="pass@1").baseline == "a"


def test_runs_are_chosen_by_settings_and_sorted(trained: InProcess) -> None:
    assert {run.spec.method.name for run in api.runs("method=mcpo", "state=done")} == {"mcpo"}
    assert len(api.runs("method=mcpo", "seed=1")) == 1
    assert len(api.runs("train.lr=7e-4")) == len(api.runs())
    seeds = [run.spec.seed for run in api.runs(sort="-seed")]
    assert seeds == sorted(seeds, reverse=True)
    assert seeds[0] > seeds[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_callbacks_hear_of_steps_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "offline")
    monkeypatch.setenv("FAKE_SECONDS", "0.3")
    run = scheduler.run
    monkeypatch.setattr(scheduler, "run", lambda expected, display: run(expected, display, WORKER))
    steps, ends = list[int](), list[str]()
    on = {"on_step": lambda one: steps.append(one.progress.step), "on_end": lambda one: ends.append(one.state)}
    api.train("scale=smoke", "train.steps=4", **on)
    assert steps
    assert steps == sorted(set(steps))
    assert ends == ["done"]
