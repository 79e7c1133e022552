"""The MLflow store, on real SQLite files and real servers: every final point once, and a state that is true."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli import methods
from mcpo_cli.config.schema import Eval, RunSpec, Train
from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.plan import Cell, Plan
from mcpo_cli.runs.attempts import Attempt, owned
from mcpo_cli.runs.home import run_dir
from mcpo_cli.runs.journal import FinalSteps, Journal, write_atomic
from mcpo_cli.store import mlflow as store_module
from mcpo_cli.store.mlflow import MlflowClient, Store, resolve

TIERS = {"easy": [2, 1], "middle": [1, 1], "hard": [0, 1]}
"""Right answers, of 2, to the two problems of each tier."""
PASS_AT_1 = {"easy": 0.75, "middle": 0.5, "hard": 0.25}


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite store with its schema, made once: it takes seconds."""
    path = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCPO_HOME", str(path))
        Store(f"sqlite:///{path}/mlflow.db").check()
    return path / "mlflow.db"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MCPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def store(home: Path, empty_database: Path) -> Store:
    with closing(sqlite3.connect(empty_database)) as source, closing(sqlite3.connect(home / "mlflow.db")) as target:
        source.backup(target)
    uri = resolve("")
    assert uri is not None
    return Store(uri)


def spec(seed: int = 0, method: str = "mcpo", steps: int = 4) -> RunSpec:
    return RunSpec(
        method=methods.get(method), seed=seed, train=Train(steps=steps), eval=Eval(problems=2, samples=2, every=2)
    )


def plan(*specs: RunSpec, suite: str = "train") -> Plan:
    return Plan(suite, "mcpo train", tuple(Cell(spec.method.label, spec) for spec in specs))


def begin(spec: RunSpec, start: int = 0) -> Attempt:
    folder = run_dir(spec.run_id)
    attempt = Attempt(folder, spec, start)
    write_atomic(folder / "spec.json", json.dumps(spec.to_dict()))
    write_atomic(attempt.folder / "provenance.json", json.dumps({"commit": "c0ffee", "dirty": True}))
    return attempt


def train(attempt: Attempt, steps: range, **metrics: float) -> None:
    for step in steps:
        values = metrics or {"train/accuracy": step / 100, "train/length": 2.0 * step}
        attempt.journal.step({"step": step, "time": 1000.0 + step, "metrics": values})


def evaluate(attempt: Attempt, *steps: int) -> None:
    for step in steps:
        rows = [
            {"step": step, "tier": tier, "problem": f"{tier} {i}", "n": 2, "c": c}
            for tier, right in TIERS.items()
            for i, c in enumerate(right)
        ]
        attempt.journal.rows("eval", step, rows)


def complete(spec: RunSpec) -> None:
    attempt = begin(spec)
    train(attempt, range(1, spec.train.steps + 1))
    evaluate(attempt, *range(0, spec.train.steps + 1, 2))
    attempt.durable(spec.train.steps)
    attempt.end("done")


def points(database: Path) -> Counter[tuple[str, str, int]]:
    """How often each (run id, metric, step) stands in the store, whatever its time and value."""
    query = (
        "select tags.value, metrics.key, metrics.step from metrics join tags on tags.run_uuid = metrics.run_uuid "
        "where tags.key = 'mcpo.run_id'"
    )
    with closing(sqlite3.connect(database)) as connection:
        return Counter(connection.execute(query).fetchall())


def expected(spec: RunSpec, steps: range, evaluations: tuple[int, ...]) -> Counter[tuple[str, str, int]]:
    names = ("train/accuracy", "train/length")
    rows = [(spec.run_id, name, step) for name in names for step in steps]
    return Counter(rows + [(spec.run_id, f"eval/{tier}/pass_at_1", step) for tier in TIERS for step in evaluations])


def runs(store: Store, suite: str = "train") -> dict[str, Any]:
    client = MlflowClient(store.uri)
    experiment = client.get_experiment_by_name(suite)
    assert experiment is not None
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_every_point_stands_once_after_ingesting_twice(store: Store, home: Path) -> None:
    complete(spec())
    everything = expected(spec(), range(1, 5), (0, 2, 4))
    assert store.ingest(plan(spec())) == everything.total()
    assert store.ingest(plan(spec())) == 0
    assert Store(store.uri).ingest(plan(spec())) == 0
    assert points(home / "mlflow.db") == everything


def test_every_point_stands_once_after_the_cursor_was_lost(store: Store, home: Path) -> None:
    complete(spec())
    store.ingest(plan(spec()))
    run = runs(store)[spec().run_id]
    for tag in ("mcpo.step", "mcpo.eval_step", "mcpo.settled"):
        MlflowClient(store.uri).delete_tag(run.info.run_id, tag)
    everything = expected(spec(), range(1, 5), (0, 2, 4))
    assert Store(store.uri).ingest(plan(spec())) == everything.total()
    assert points(home / "mlflow.db") == everything


def test_only_what_a_checkpoint_covers_is_taken_and_a_rewind_duplicates_nothing(store: Store, home: Path) -> None:
    first = begin(spec())
    train(first, range(1, 4))
    evaluate(first, 0, 2)
    assert store.ingest(plan(spec())) == len(PASS_AT_1)  # the base policy's evaluation
    first.durable(2)
    store.ingest(plan(spec()))
    assert points(home / "mlflow.db") == expected(spec(), range(1, 3), (0, 2))
    first.end("interrupted")
    second = begin(spec(), start=2)
    train(second, range(3, 5), **{"train/accuracy": 0.9, "train/length": 7.0})
    evaluate(second, 4)
    second.durable(4)
    second.end("done")
    store.ingest(plan(spec()))
    assert points(home / "mlflow.db") == expected(spec(), range(1, 5), (0, 2, 4))
    run = runs(store)[spec().run_id]
    history = MlflowClient(store.uri).get_metric_history(run.info.run_id, "train/accuracy")
    assert [(point.step, point.value, point.timestamp) for point in history] == [
        (1, 0.01, 1001000),
        (2, 0.02, 1002000),
        (3, 0.9, 1003000),
        (4, 0.9, 1004000),
    ]
    assert run.data.tags["attempt"] == "attempt_2"


def test_an_attempt_that_falls_back_behind_the_last_checkpoint_duplicates_nothing(store: Store, home: Path) -> None:
    first = begin(spec())
    train(first, range(1, 5))
    evaluate(first, 0, 2)
    first.durable(4)
    store.ingest(plan(spec()))
    first.end("interrupted")
    second = begin(spec(), start=2)  # the checkpoint of step 4 was damaged
    train(second, range(3, 5))
    evaluate(second, 4)
    second.end("done")
    store.ingest(plan(spec()))
    assert points(home / "mlflow.db") == expected(spec(), range(1, 5), (0, 2, 4))


def test_non_finite_values_are_counted_not_written(store: Store, home: Path) -> None:
    attempt = begin(spec())
    train(attempt, range(1, 2), **{"train/a": float("nan"), "train/b": float("inf"), "train/c": 1.5})
    attempt.durable(1)
    attempt.end("failed", "loss is not finite")
    store.ingest(plan(spec()))
    assert runs(store)[spec().run_id].data.metrics == {"train/c": 1.5, "journal/nonfinite": 2.0}


@pytest.mark.parametrize(("state", "status"), [("failed", "FAILED"), ("interrupted", "KILLED")])
def test_a_run_that_ended_early_makes_its_plan_end_so(store: Store, state: Any, status: str) -> None:
    complete(spec(0))
    begin(spec(1)).end(state)
    both = plan(spec(0), spec(1))
    store.ingest(both)
    found = runs(store)
    assert found[spec(0).run_id].info.status == "FINISHED"
    assert found[spec(1).run_id].info.status == status
    assert found[f"train {both.plan_id}"].info.status == status


def test_states_and_times_follow_the_journal_from_start_to_end(store: Store) -> None:
    name = spec().run_id
    with owned(run_dir(name)):
        attempt = begin(spec())
        store.ingest(plan(spec()))
        assert [run.info.status for run in runs(store).values()] == ["RUNNING", "RUNNING"]
    store.ingest(plan(spec()))  # nobody holds its lock any more: it was killed
    assert [run.info.status for run in runs(store).values()] == ["KILLED", "KILLED"]
    train(attempt, range(1, 5))
    evaluate(attempt, 0, 2, 4)
    attempt.end("done")
    store.ingest(plan(spec()))
    assert [run.info.status for run in runs(store).values()] == ["FINISHED", "FINISHED"]
    for run in runs(store).values():
        assert run.info.start_time == round(attempt.status["started"] * 1000)
        assert run.info.end_time == round(attempt.status["updated"] * 1000)


def test_a_child_bears_what_its_run_is(store: Store, home: Path) -> None:
    complete(spec(3, "dapo"))
    store.ingest(plan(spec(3, "dapo"), suite="table1"))
    found = runs(store, "table1")
    child = found[spec(3, "dapo").run_id]
    parent = next(run for name, run in found.items() if name.startswith("table1 "))
    tags = {
        "mlflow.parentRunId": parent.info.run_id,
        "mcpo.arm": "dapo",
        "method": "dapo",
        "model": "toy-s",
        "seed": "3",
        "scale": "toy",
        "regime": "drift",
        "commit": "c0ffee",
        "dirty": "True",
        "mcpo.state": "done",
    }
    assert tags.items() <= child.data.tags.items()
    assert child.data.params["train.steps"] == "4"
    assert child.data.params["method.name"] == "dapo"
    assert [data.dataset.name for data in child.inputs.dataset_inputs] == ["arithmetic"]
    assert {tier: child.data.metrics[f"eval/{tier}/pass_at_1"] for tier in TIERS} == PASS_AT_1
    client = MlflowClient(store.uri)
    assert {file.path for file in client.list_artifacts(child.info.run_id)} == {"spec.json", "provenance.json", "eval"}
    assert len(client.list_artifacts(child.info.run_id, "eval")) == 3
    assert child.info.artifact_uri.startswith((home / "mlartifacts").as_uri())
    assert sorted(path.name for path in home.parent.iterdir()) == ["home"]


def test_a_larger_plan_adopts_the_runs_it_shares(store: Store, home: Path) -> None:
    complete(spec(0))
    store.ingest(plan(spec(0)))
    complete(spec(1))
    both = plan(spec(0), spec(1))
    store.ingest(both)
    found = runs(store)
    parent = found[f"train {both.plan_id}"].info.run_id
    assert {found[spec(i).run_id].data.tags["mlflow.parentRunId"] for i in (0, 1)} == {parent}
    assert points(home / "mlflow.db").most_common(1)[0][1] == 1


def test_sync_brings_what_was_trained_offline_under_its_suite(store: Store, home: Path) -> None:
    complete(spec(0))
    complete(spec(1, "dapo"))
    origin = {"suite": "table1", "arm": "DAPO", "command": "mcpo reproduce table1"}
    write_atomic(run_dir(spec(1, "dapo").run_id) / "origin.json", json.dumps(origin))
    each = expected(spec(), range(1, 5), (0, 2, 4)).total()
    assert store.sync() == {spec(0).run_id: each, spec(1, "dapo").run_id: each}
    assert set(store.sync().values()) == {0}
    assert runs(store, "table1")[spec(1, "dapo").run_id].data.tags["mcpo.arm"] == "DAPO"
    assert spec(0).run_id in runs(store, "train")


def test_sync_leaves_a_run_with_the_plan_that_has_it(store: Store) -> None:
    both = plan(spec(0), spec(1))
    complete(spec(0))
    store.ingest(both)
    store.sync()
    assert set(runs(store)) == {spec(0).run_id, f"train {both.plan_id}"}


def test_a_failure_is_one_line_and_the_next_call_catches_up(store: Store, home: Path) -> None:
    attempt = begin(spec())
    store.ingest(plan(spec()))
    train(attempt, range(1, 3))
    evaluate(attempt, 0, 2)
    attempt.durable(2)
    with closing(sqlite3.connect(home / "mlflow.db")) as connection:
        connection.execute("alter table metrics rename to gone")
    with pytest.raises(StoreError) as caught:
        store.ingest(plan(spec()))
    assert "\n" not in caught.value.message
    assert caught.value.fix == "mcpo runs sync"
    with closing(sqlite3.connect(home / "mlflow.db")) as connection:
        connection.execute("alter table gone rename to metrics")
    store.ingest(plan(spec()))
    assert points(home / "mlflow.db") == expected(spec(), range(1, 3), (0, 2))


def test_polling_reads_only_what_is_new(home: Path) -> None:
    attempt = begin(spec())
    reader = FinalSteps(Journal(run_dir(spec().run_id)), after=0)
    train(attempt, range(1, 4))
    attempt.durable(2)
    assert [row["step"] for row in reader.read()] == [1, 2]
    path = attempt.folder / "metrics.jsonl"
    read, rest = path.read_bytes().rsplit(b"\n", 2)[:2]
    path.write_bytes(b"x" * len(read) + b"\n" + rest + b"\n")
    assert list(reader.read()) == []
    train(attempt, range(4, 5))
    attempt.durable(4)
    assert [row["step"] for row in reader.read()] == [3, 4]


def test_settings_name_the_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("") == f"sqlite:///{home}/mlflow.db"
    assert resolve("offline") is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    assert resolve("") == "http://somewhere"
    assert resolve("sqlite:///x.db") == "sqlite:///x.db"


@contextmanager
def silent_server() -> Iterator[int]:
    """Takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_dead_server_is_an_error_at_once(home: Path) -> None:
    start = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        Store(f"http://me:top@secret@127.0.0.1:{free_port()}").check()
    assert time.monotonic() - start < 10
    assert "http://***@127.0.0.1" in caught.value.message
    assert "secret" not in str(caught.value)
    assert "compute.tracking_uri=offline" in str(caught.value)
    assert "mcpo runs sync" in str(caught.value)


@pytest.mark.slow
def test_a_server_that_never_answers_is_an_error_in_seconds(home: Path) -> None:
    start = time.monotonic()
    with silent_server() as port, pytest.raises(ConfigError, match="offline"):
        Store(f"http://127.0.0.1:{port}").check()
    assert time.monotonic() - start < 40


@pytest.mark.parametrize("uri", ["sqlite:///{home}/file/mlflow.db", "sqlite:///{home}/file", "nonsense", "foo://bar"])
def test_a_store_that_cannot_be_is_an_error_at_once(home: Path, uri: str) -> None:
    (home / "file").write_text("this is no database, and no folder either. " * 100)
    start = time.monotonic()
    with pytest.raises(ConfigError, match="offline"):
        Store(uri.format(home=home)).check()
    assert time.monotonic() - start < 5


def test_monitoring_keeps_the_plan_running_and_logs_the_load(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MONITOR_SECONDS", 0.2)
    complete(spec())
    name = f"train {plan(spec()).plan_id}"
    with store.monitor(plan(spec())):
        store.ingest(plan(spec()))
        assert runs(store)[name].info.status == "RUNNING"
        time.sleep(1.5)
    store.ingest(plan(spec()))
    parent = runs(store)[name]
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["system/system_memory_usage_percentage"] > 0


def test_what_fails_in_the_monitor_stays_there_and_what_fails_beside_it_does_not(home: Path) -> None:
    dead = Store(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ZeroDivisionError), dead.monitor(plan(spec())):
        _ = 1 / 0


@contextmanager
def process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(30)
        assert running.stderr
        running.stderr.close()


def answer(url: str, body: dict[str, Any], seconds: float = 60) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.load(response)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@pytest.mark.slow
def test_processes_that_share_a_new_store_lose_nothing(home: Path, tmp_path: Path) -> None:
    script = "import sys; from mcpo_cli.store.mlflow import Store; print(Store(sys.argv[1]).sync())"
    uri = f"sqlite:///{tmp_path}/shared.db"
    specs = [spec(seed) for seed in range(4)]
    everything: Counter[tuple[str, str, int]] = Counter()
    for one in specs:
        complete(one)
        everything += expected(one, range(1, 5), (0, 2, 4))
    other = tmp_path / "other"
    shutil.copytree(home, other)
    for folder in sorted((other / "runs").iterdir())[:2]:
        shutil.rmtree(folder)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, uri],
            env=os.environ | {"MCPO_HOME": str(path)},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for path in (home, home, other)
    ]
    outputs = [one.communicate(timeout=120) for one in running]
    assert [one.returncode for one in running] == [0, 0, 0], outputs
    assert [error for _, error in outputs] == ["", "", ""]
    assert points(tmp_path / "shared.db") == everything


@pytest.mark.slow
def test_a_real_server_takes_runs_and_its_end_is_a_store_error(home: Path, tmp_path: Path) -> None:
    port = free_port()
    command = ["-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    places = {
        "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{tmp_path}/server.db",
        "MLFLOW_ARTIFACTS_DESTINATION": str(tmp_path / "artifacts"),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    complete(spec(0))
    store = Store(f"http://127.0.0.1:{port}")
    with process(command, places):
        answer(f"{store.uri}/api/2.0/mlflow/experiments/search", {"max_results": 1})
        store.check()
        store.ingest(plan(spec(0)))
        assert store.ingest(plan(spec(0))) == 0
        assert runs(store)[spec(0).run_id].info.status == "FINISHED"
        assert points(tmp_path / "server.db") == expected(spec(0), range(1, 5), (0, 2, 4))
    assert len(list((tmp_path / "artifacts").rglob("spec.json"))) == 1
    complete(spec(1))
    start = time.monotonic()
    with pytest.raises(StoreError, match="mcpo runs sync"):
        store.ingest(plan(spec(0), spec(1)))
    assert time.monotonic() - start < 10


@pytest.mark.slow
def test_the_ui_shows_the_runs_and_ends_with_ctrl_c(store: Store) -> None:
    complete(spec())
    store.ingest(plan(spec()))
    port = free_port()
    with process(["-m", "mcpo_cli.main", "ui", "--port", str(port)], {}) as ui:
        url = f"http://127.0.0.1:{port}/api/2.0/mlflow"
        experiments = answer(f"{url}/experiments/search", {"max_results": 10})["experiments"]
        number = next(one["experiment_id"] for one in experiments if one["name"] == "train")
        found = answer(f"{url}/runs/search", {"experiment_ids": [number]})["runs"]
        assert spec().run_id in {run["info"]["run_name"] for run in found}
        taken = subprocess.run(
            [sys.executable, "-m", "mcpo_cli.main", "ui", "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert taken.returncode == 2
        assert f"mcpo ui --port {port + 1}" in taken.stderr
        ui.send_signal(signal.SIGINT)
        assert ui.wait(30) == 0
        assert ui.stderr
        talk = ui.stderr.read()
        assert f"http://127.0.0.1:{port}" in talk
        assert "Traceback" not in talk
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_the_ui_without_a_store_says_how_to_get_one(home: Path) -> None:
    from mcpo_cli.commands.ui import ui

    with pytest.raises(ConfigError, match="mcpo train"):
        ui()
