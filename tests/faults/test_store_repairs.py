"""Stores that were changed behind our back: `mcpo runs sync` repairs them, or names the runs that it cannot bring."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import ViewType
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import StoreError
from mcpo_cli.store.connection import MlflowClient
from mcpo_cli.store.mlflow import Store
from mcpo_cli.store.pulls import Pulls
from tests import store_runs
from tests.faults.conftest import Faults
from tests.faults.store_points import differences

MCPO = (sys.executable, "-m", "mcpo_cli.main")
MAKE = "import sys; from mcpo_cli.store.mlflow import Store; print('go', flush=True); Store(sys.argv[1]).check()"
RUNS = 3


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path) -> Path:
    """A home whose store is there and holds nothing."""
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    monkeypatch.setenv("MCPO_HOME", str(folder))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


def trained(seeds: range = range(RUNS)) -> Plan:
    """Runs that are done, under one command, not in the store yet."""
    specs = [store_runs.spec(seed) for seed in seeds]
    for spec in specs:
        store_runs.complete(spec)
        store_runs.origin(spec)
    return store_runs.plan(*specs)


def store_of(home: Path) -> Store:
    return Store(f"sqlite:///{home}/mlflow.db")


def mcpo(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"MCPO_HOME": str(home)}
    return subprocess.run([*MCPO, *words], env=env, capture_output=True, text=True, check=False)


def settled(home: Path, plan: Plan) -> tuple[int, int]:
    """Lost and wrong points after a sync that sends nothing any more and complains of nothing."""
    store = store_of(home)
    assert set(store.sync().values()) == {0}
    assert [store.notes, store.refused, store.elsewhere, store.damaged] == [[], {}, {}, {}]
    return differences(home, plan, home / "mlflow.db")


@pytest.mark.slow
def test_a_home_that_moved(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Artifacts are looked for, and written, where the home is now; what was lost is sent again, and pulled."""
    first = trained(range(2))
    store_of(home).sync()
    moved = tmp_path / "moved"
    home.rename(moved)
    monkeypatch.setenv("MCPO_HOME", str(moved))
    both = store_runs.plan(*(cell.spec for cell in first.cells), store_runs.spec(2))
    trained(range(2, 3))
    lost_archive = store_runs.runs(store_of(moved))[first.cells[0].spec.run_id].info.run_id
    shutil.rmtree(next(moved.glob(f"mlartifacts/train/{lost_archive}")))
    done = mcpo(moved, "runs", "sync")
    assert done.returncode == 0, done.stderr
    assert "are now looked for in" in done.stderr
    store = store_of(moved)
    assert not home.exists(), "the old place was made again"
    runs = [run for name, run in store_runs.runs(store).items() if not name.startswith("train ")]
    assert all(run.info.artifact_uri.startswith(moved.as_uri()) for run in runs)
    before = {path.parent.name for path in moved.glob("runs/*/spec.json")}
    shutil.rmtree(moved / "runs")
    pulled, left = Pulls(store.uri).pull(None)
    assert (set(pulled), left) == (before, {})
    lost, wrong = settled(moved, both)
    faults("a home that moved, with an archive lost", lost=lost, wrong=wrong)


@pytest.mark.slow
def test_an_experiment_deleted_in_the_ui(home: Path, faults: Faults) -> None:
    plan = trained()
    store_of(home).sync()
    client = MlflowClient(store_of(home).uri)
    experiment = client.get_experiment_by_name("train")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    done = mcpo(home, "runs", "sync")
    assert done.returncode == 0, done.stderr
    assert "had been deleted from the store: restored" in done.stderr
    lost, wrong = settled(home, plan)
    faults("an experiment deleted in the store's UI", lost=lost, wrong=wrong)


def without_parent(client: MlflowClient, run: Any) -> None:
    client.delete_tag(run.info.run_id, "mlflow.parentRunId")


def with_a_strange_cursor(client: MlflowClient, run: Any) -> None:
    client.set_tag(run.info.run_id, "mcpo.step", "abc")
    client.set_tag(run.info.run_id, "mcpo.eval_step", "")
    client.delete_tag(run.info.run_id, "mcpo.settled")


def without_its_parent_run(client: MlflowClient, run: Any) -> None:
    client.delete_run(run.data.tags["mlflow.parentRunId"])


def deleted(client: MlflowClient, run: Any) -> None:
    client.delete_run(run.info.run_id)


@pytest.mark.parametrize("injure", [without_parent, with_a_strange_cursor, without_its_parent_run, deleted])
def test_a_run_changed_in_the_ui(injure: Callable[[MlflowClient, Any], None], home: Path, faults: Faults) -> None:
    """A tag removed or overwritten, a run or its parent deleted: the next sync makes it good, the others are served."""
    plan = trained()
    store_of(home).sync()
    injured = store_runs.runs(store_of(home))[plan.cells[0].spec.run_id]
    injure(MlflowClient(store_of(home).uri), injured)
    store = store_of(home)
    assert set(store.sync()) == {cell.spec.run_id for cell in plan.cells}
    assert not store.refused
    lost, wrong = settled(home, plan)
    child = store_runs.runs(store_of(home))[plan.cells[0].spec.run_id]
    wrong += (
        child.data.tags["mlflow.parentRunId"] != store_runs.runs(store_of(home))[f"train {plan.plan_id}"].info.run_id
    )
    faults("tags removed or overwritten, and runs deleted, in the store's UI", lost=lost, wrong=wrong)


@pytest.mark.slow
def test_a_run_that_the_store_refuses_is_named(home: Path, faults: Faults) -> None:
    """A parameter in the store has another value, which MLflow never changes: the other runs are brought."""
    plan = trained()
    store_of(home).ingest(store_runs.plan(plan.cells[0].spec))
    run = store_runs.runs(store_of(home))[plan.cells[0].spec.run_id].info.run_id
    with closing(sqlite3.connect(home / "mlflow.db")) as connection:
        connection.execute("update params set value = 'other' where run_uuid = ? and key = 'train.steps'", [run])
        connection.execute("delete from tags where run_uuid = ? and key = 'mcpo.settled'", [run])
        connection.commit()
    done = mcpo(home, "runs", "sync")
    assert done.returncode == StoreError.exit_code
    assert f"{plan.cells[0].spec.run_id}: " in done.stderr
    assert "the store does not take 1 of 3 runs" in done.stderr
    assert "delete these runs in mcpo ui" in done.stderr
    MlflowClient(store_of(home).uri).delete_run(run)
    assert mcpo(home, "runs", "sync").returncode == 0
    lost, wrong = settled(home, plan)
    faults("a run that the store refuses", lost=lost, wrong=wrong)


@pytest.mark.slow
def test_two_homes_with_one_store_and_the_same_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    """Who comes second is told where the store has the run from, and changes nothing of it."""
    plan = trained(range(1))
    uri = store_of(home).uri
    store_of(home).sync()
    before = store_runs.runs(store_of(home))[plan.cells[0].spec.run_id]
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("MCPO_HOME", str(other))
    attempt = store_runs.begin(plan.cells[0].spec)
    store_runs.train(attempt, range(1, 3), **{"train/accuracy": 0.5})
    attempt.durable(2)
    attempt.end("interrupted")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    done = mcpo(other, "runs", "sync")
    assert done.returncode == 0, done.stderr
    assert f"the store has it from {before.data.tags['mcpo.home']}" in done.stderr
    monkeypatch.setenv("MCPO_HOME", str(home))
    after = store_runs.runs(store_of(home))[plan.cells[0].spec.run_id]
    wrong = int(after.data.tags != before.data.tags or after.data.metrics != before.data.metrics)
    assert str(home) in after.data.tags["mcpo.home"]
    assert len(after.data.tags["mcpo.digest"]) == 64
    lost, others = settled(home, plan)
    faults("two homes with one store and the same run", lost=lost, wrong=wrong + others)


@pytest.mark.slow
def test_killed_while_the_store_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """The file is there whole or not at all, and the same command goes on."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("MCPO_HOME", str(home))
    database, killed = home / "mlflow.db", 0
    # When the schema is begun, and when the file is being written, which may be over before it is seen.
    for sign in ("mlflow.db.setup.lock", ".mlflow.db.*.part"):
        process = subprocess.Popen([sys.executable, "-c", MAKE, f"sqlite:///{database}"], stdout=subprocess.PIPE)
        while process.poll() is None and not any(home.glob(sign)):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        if database.exists():
            with closing(sqlite3.connect(database)) as connection:
                assert connection.execute("select name from experiments").fetchall() == [("Default",)]
    assert killed > 0
    plan = trained(range(1))
    began = time.monotonic()
    store_of(home).sync()
    taken = time.monotonic() - began
    lost, wrong = differences(home, plan, database)
    faults("SIGKILL while an SQLite store is made", times=killed, lost=lost, wrong=wrong, seconds=[taken])


def test_the_schema_made_in_memory_is_the_one_that_mlflow_makes(tmp_path: Path, empty_store: Path) -> None:
    theirs = tmp_path / "theirs.db"
    SqlAlchemyStore(f"sqlite:///{theirs}", tmp_path.as_uri()).engine.dispose()

    def schema(database: Path) -> list[list[str]]:
        """Statements, each as its sorted parts: the migrations go over sets, so that their order changes."""
        with closing(sqlite3.connect(database)) as connection:
            return sorted(sorted(re.split(r",\s*", line)) for line in connection.iterdump() if "'Default'" not in line)

    assert schema(empty_store) == schema(theirs)


def test_deleted_runs_stay_deleted_in_the_store(home: Path) -> None:
    """A run deleted in the UI comes back as another run: what the user deleted is not touched."""
    plan = trained(range(1))
    store_of(home).sync()
    client = MlflowClient(store_of(home).uri)
    old = store_runs.runs(store_of(home))[plan.cells[0].spec.run_id].info
    client.delete_run(old.run_id)
    store_of(home).sync()
    gone = client.search_runs([old.experiment_id], run_view_type=ViewType.DELETED_ONLY)
    assert [run.info.run_id for run in gone] == [old.run_id]
    assert store_runs.runs(store_of(home))[plan.cells[0].spec.run_id].info.run_id != old.run_id
