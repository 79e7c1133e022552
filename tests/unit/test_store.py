"""The MLflow store: every final point once, and correct states; on SQLite files, behind servers, and in the UI."""

import json
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from mcpo_cli import tasks
from mcpo_cli.errors import StoreError
from mcpo_cli.home import run_dir
from mcpo_cli.records import SOURCES
from mcpo_cli.runs.attempts import owned
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.trackers import resolve
from mcpo_cli.trackers.mlflow import Store
from tests.errors import refused
from tests.store_runs import (
    AVERAGES,
    PASS_AT_1,
    TIERS,
    begin,
    complete,
    evaluate,
    expected,
    free_port,
    plan,
    points,
    runs,
    spec,
    train,
)


def test_a_damaged_run_keeps_no_other_from_the_store(store: Store, home: Path) -> None:
    sound, sick = spec(0), spec(1)
    for one in (sick, sound):
        complete(one)
    path = run_dir(sick.run_id) / "attempt_1" / "metrics.jsonl"
    path.write_text(path.read_text().replace("0.03", "0.09"))
    assert store.sync() == {sound.run_id: expected(sound, range(1, 5), (0, 2, 4)).total()}
    assert store.left == {sick.run_id: f"{path} is damaged: its checksum does not match"}
    assert points(home / "mlflow.db") == expected(sound, range(1, 5), (0, 2, 4))
    path.write_text(path.read_text().replace("0.09", "0.03"))
    assert store.sync()[sick.run_id] == expected(sick, range(1, 5), (0, 2, 4)).total()
    assert store.left == {}


@pytest.mark.parametrize("durable", [2, 4])
def test_only_what_a_checkpoint_covers_is_taken_and_a_rewind_duplicates_nothing(
    store: Store, home: Path, durable: int
) -> None:
    """The second attempt starts after step 2: there was no later checkpoint, or that of step 4 was damaged."""
    first = begin(spec())
    train(first, range(1, 5))
    evaluate(first, 0, 2)
    assert store.ingest(plan(spec())) == len(PASS_AT_1) + len(AVERAGES) + 1  # the base policy's evaluation
    first.durable(durable)
    store.ingest(plan(spec()))
    assert points(home / "mlflow.db") == expected(spec(), range(1, durable + 1), (0, 2))
    first.end("interrupted")
    second = begin(spec(), start=2)
    train(second, range(3, 5), **{"train/accuracy": 0.9, "train/length": 7.0})
    evaluate(second, 4)
    second.durable(4)
    second.end("done")
    store.ingest(plan(spec()))
    assert points(home / "mlflow.db") == expected(spec(), range(1, 5), (0, 2, 4))
    run = runs(store)[spec().run_id]
    assert run.data.tags["attempt"] == "attempt_2"
    if durable == 2:
        history = MlflowClient(store.uri).get_metric_history(run.info.run_id, "train/accuracy")
        assert [(point.step, point.value, point.timestamp) for point in history] == [
            (step, value, 1000 * (1000 + step)) for step, value in ((1, 0.01), (2, 0.02), (3, 0.9), (4, 0.9))
        ]


def test_states_and_times_follow_the_journal_from_start_to_end(store: Store) -> None:
    name = spec().run_id
    with owned(run_dir(name)):
        attempt = begin(spec())
        store.ingest(plan(spec()))
        assert [run.info.status for run in runs(store).values()] == ["RUNNING", "RUNNING"]
    store.ingest(plan(spec()))  # no process holds its lock: it was killed
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
        "arm": "dapo",
        "method": "dapo",
        "model": "toy-s",
        "base_seed": "3",
        "seed": "3",
        "suite": "table1",
        "scale": "toy",
        "regime": "drift",
        "commit": "c0ffee",
        "dirty": "True",
        "state": "done",
    }
    assert tags.items() <= child.data.tags.items()
    assert child.data.params["train.steps"] == "4"
    assert child.data.params["method.name"] == "dapo"
    assert [data.dataset.name for data in child.inputs.dataset_inputs] == ["arithmetic"]
    assert {tier: child.data.metrics[f"eval/{tier}/pass_at_1"] for tier in TIERS} == PASS_AT_1
    # Tiers have 2 and 1, 1 and 1, 0 and 1 right samples of 2: pass@2 is 1, 1, 1/2; best@2 is 7/8, 3/4, 3/8.
    averages = {name: child.data.metrics[f"eval/average/{name}"] for name in ("pass_at_1", "pass_at_2", "best_at_2")}
    assert averages == pytest.approx({"pass_at_1": 0.5, "pass_at_2": 5 / 6, "best_at_2": 2 / 3})
    client = MlflowClient(store.uri)
    artifacts = {file.path for file in client.list_artifacts(child.info.run_id)}
    assert artifacts == {"spec.json", "provenance.json", "eval"}
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
    store.sync()
    assert runs(store).keys() == found.keys(), "a run stays with the plan that has it"


def test_an_experiment_that_a_person_renamed_is_found_again(store: Store, home: Path) -> None:
    complete(spec())
    store.ingest(plan(spec()))
    client = MlflowClient(store.uri)
    (named,) = [found for found in client.search_experiments() if found.name == plan(spec()).suite]
    client.rename_experiment(named.experiment_id, "mine")
    assert Store(store.uri).experiment(plan(spec()).suite) == named.experiment_id
    assert Store(store.uri).ingest(plan(spec())) == 0


def test_a_run_that_two_suites_use_stands_under_both(store: Store, home: Path) -> None:
    complete(spec(0))
    for suite in ("table1", "headline"):
        store.ingest(plan(spec(0), suite=suite))
        assert runs(store, suite)[spec(0).run_id].data.tags["suite"] == suite


def test_sync_brings_what_was_trained_offline_under_its_suite(store: Store, home: Path) -> None:
    complete(spec(0))
    complete(spec(1, "dapo"))
    origin = {"suite": "table1", "arm": "DAPO", "command": "mcpo reproduce table1"}
    write_atomic(run_dir(spec(1, "dapo").run_id) / "origin.json", json.dumps(origin))
    each = expected(spec(), range(1, 5), (0, 2, 4)).total()
    assert store.sync() == {spec(0).run_id: each, spec(1, "dapo").run_id: each}
    assert set(store.sync().values()) == {0}
    assert runs(store, "table1")[spec(1, "dapo").run_id].data.tags["arm"] == "DAPO"
    assert spec(0).run_id in runs(store, "train")


def test_an_experiment_that_exists_although_it_was_not_found_is_used(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine, which shares no lock, made it meanwhile, or a request whose answer was lost."""
    complete(spec())
    there = MlflowClient(store.uri).create_experiment("train")
    look, looks = MlflowClient.get_experiment_by_name, count()
    monkeypatch.setattr(
        MlflowClient, "get_experiment_by_name", lambda self, name: look(self, name) if next(looks) else None
    )
    assert store.sync() == {spec().run_id: expected(spec(), range(1, 5), (0, 2, 4)).total()}
    assert {run.info.experiment_id for run in runs(store).values()} == {there}


def test_a_failure_is_one_line_and_the_next_call_catches_up(store: Store, home: Path) -> None:
    attempt = begin(spec())
    store.ingest(plan(spec()))
    train(attempt, range(1, 3))
    evaluate(attempt, 0, 2)
    attempt.durable(2)
    with closing(sqlite3.connect(home / "mlflow.db")) as connection:
        connection.execute("alter table metrics rename to gone")
    with refused("store_failed") as caught:
        store.ingest(plan(spec()))
    assert "\n" not in caught.value.message
    assert caught.value.fix == "mcpo runs sync"
    with closing(sqlite3.connect(home / "mlflow.db")) as connection:
        connection.execute("alter table gone rename to metrics")
    store.ingest(plan(spec()))
    assert points(home / "mlflow.db") == expected(spec(), range(1, 3), (0, 2))


def test_settings_name_the_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("") == f"sqlite:///{home}/mlflow.db"
    assert resolve("offline") is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    assert resolve("") == "http://somewhere"
    assert resolve("sqlite:///x.db") == "sqlite:///x.db"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    for sign in "?#%":
        monkeypatch.setenv("MCPO_HOME", str(home / f"a{sign}b"))
        with refused("bad_input", sign):
            resolve("")
        assert resolve("offline") is None


def test_a_plan_that_goes_on_is_running(store: Store) -> None:
    complete(spec())
    name = f"train {plan(spec()).plan_id}"
    for is_running, status in ((True, "RUNNING"), (False, "FINISHED")):
        store.ingest(plan(spec()), is_running=is_running)
        assert runs(store)[name].info.status == status


def test_published_data_sets_are_named_with_what_was_in_them(store: Store) -> None:
    math = replace(spec(), task=tasks.get("math"))
    sources = {name: {"digest": f"{name}-digest", "source": f"hub:{name}"} for name in ("dapo_math_17k", "aime24")}
    complete(math)
    write_atomic(run_dir(math.run_id) / SOURCES, json.dumps(sources))
    store.ingest(plan(math))
    found = {data.dataset.name: data.dataset for data in runs(store)[math.run_id].inputs.dataset_inputs}
    assert {name: (one.digest, one.source) for name, one in found.items()} == {
        name: (one["digest"], one["source"]) for name, one in sources.items()
    }


def test_a_run_that_was_trained_anew_replaces_the_old_one(store: Store, home: Path) -> None:
    complete(spec())
    store.sync()
    old = runs(store)[spec().run_id].info.run_id
    shutil.rmtree(run_dir(spec().run_id))
    time.sleep(0.01)
    complete(spec())
    assert set(Store(store.uri).sync()) == {spec().run_id}
    assert runs(store)[spec().run_id].info.run_id != old


def change_a_parameter(client: MlflowClient, run: Any, database: Path) -> None:
    """MLflow never changes one."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("update params set value = 'x' where run_uuid = ? and key = 'train.steps'", [run])
        connection.commit()
    client.delete_tag(run, "mlflow.mcpo.settled")


def lose_the_cursor(client: MlflowClient, run: Any, _database: Path) -> None:
    client.set_tag(run, "mlflow.mcpo.step", "abc")
    for tag in ("mlflow.mcpo.eval_step", "mlflow.mcpo.settled"):
        client.delete_tag(run, tag)


@pytest.mark.parametrize(
    ("injure", "is_refused"),
    [
        (change_a_parameter, True),
        (lose_the_cursor, False),
        (lambda client, run, _: client.delete_tag(run, "mlflow.parentRunId"), False),
        (lambda client, run, _: client.delete_run(run), False),
    ],
)
def test_a_run_changed_in_the_store_blocks_no_other(store: Store, home: Path, injure: Any, is_refused: bool) -> None:
    """If MLflow refuses the run, a message names it; if it was deleted, it is uploaded again."""
    both, client = plan(spec(0), spec(1)), MlflowClient(store.uri)
    complete(spec(0))
    store.ingest(both)
    run = runs(store)[spec(0).run_id].info.run_id
    injure(client, run, home / "mlflow.db")
    complete(spec(1))
    again = Store(store.uri)
    assert spec(1).run_id in again.sync()
    assert (set(again.left) == {spec(0).run_id}) == is_refused
    if is_refused:
        client.delete_run(run)
        again.sync()
        assert again.left == {}
    everything = expected(spec(0), range(1, 5), (0, 2, 4)) + expected(spec(1), range(1, 5), (0, 2, 4))
    assert points(home / "mlflow.db") == everything


@pytest.mark.parametrize(
    ("damage", "match"),
    [("delete", "was deleted in"), ("remove", "its file was removed")],
)
def test_a_store_that_is_not_as_it_was_is_named_with_what_helps(
    store: Store, home: Path, damage: str, match: str
) -> None:
    complete(spec())
    store.ingest(plan(spec()))
    if damage == "delete":
        client = MlflowClient(store.uri)
        client.delete_experiment(runs(store)[spec().run_id].info.experiment_id)
    else:
        (home / "mlflow.db").unlink()
    opened = store if damage == "remove" else Store(f"sqlite:///{home}/mlflow.db")
    with pytest.raises(StoreError, match=match) as caught:
        opened.sync()
    assert caught.value.fix


def test_two_homes_with_one_store_and_the_same_run_are_both_named(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(spec())
    store.sync()
    before = runs(store)[spec().run_id]
    other = home.with_name("other")
    other.mkdir()
    monkeypatch.setenv("MCPO_HOME", str(other))
    train(begin(spec()), range(1, 3), **{"train/accuracy": 0.5})
    second = Store(store.uri)
    assert second.sync() == {}
    assert f"{home}" in second.left[spec().run_id]
    assert f"{other}" in second.left[spec().run_id]
    after = runs(store)[spec().run_id]
    assert (after.data.tags, after.data.metrics) == (before.data.tags, before.data.metrics)
    # A copy of the home has the same journal.
    shutil.rmtree(other)
    shutil.copytree(home, other)
    assert set(Store(store.uri).sync().values()) == {0}


# --- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def silent_server() -> Iterator[int]:
    """A server that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_dead_server_is_an_error_at_once(home: Path) -> None:
    start = time.monotonic()
    with refused("bad_input", "http://***@127.0.0.1") as caught:
        Store(f"http://me:top@secret@127.0.0.1:{free_port()}").check()
    assert time.monotonic() - start < 60
    assert "secret" not in str(caught.value)
    assert all(way in str(caught.value.fix) for way in ("compute.tracking_uri=offline", "mcpo runs sync"))


@pytest.mark.slow
def test_a_server_that_never_answers_is_an_error_in_seconds(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patience, retries = os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"], os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]
    assert (int(patience), int(retries)) == (10, 1)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    start = time.monotonic()
    with silent_server() as port, refused("bad_input"):
        Store(f"http://127.0.0.1:{port}").check()
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("uri", ["sqlite:///{home}/file/mlflow.db", "sqlite:///{home}/file", "nonsense", "foo://bar"])
def test_a_store_that_cannot_be_is_an_error_at_once(home: Path, uri: str) -> None:
    (home / "file").write_text("this is no database, and no folder either. " * 100)
    start = time.monotonic()
    with refused("bad_input"):
        Store(uri.format(home=home)).check()
    assert time.monotonic() - start < 60


def test_the_ui_on_a_port_that_is_taken_names_the_next(store: Store) -> None:
    from mcpo_cli.commands.ui import ui

    with silent_server() as port, refused("bad_input") as caught:
        ui(port=port)
    assert str(caught.value.fix).startswith("mcpo ui --port ")


def test_the_ui_without_a_store_says_how_to_get_one(home: Path) -> None:
    from mcpo_cli.commands.ui import ui

    with refused("bad_input"):
        ui()
