"""The MLflow store behind real servers, dead ones too, beside other processes, and in the UI."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.store.mlflow import Store
from tests.faults.faulty_server import mlflow_server
from tests.store_runs import (
    complete,
    expected,
    free_port,
    plan,
    points,
    runs,
    spec,
)


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
    assert time.monotonic() - start < 60
    assert "http://***@127.0.0.1" in caught.value.message
    assert "secret" not in str(caught.value)
    assert "compute.tracking_uri=offline" in str(caught.value)
    assert "mcpo runs sync" in str(caught.value)


@pytest.mark.slow
def test_a_server_that_never_answers_is_an_error_in_seconds(home: Path) -> None:
    start = time.monotonic()
    with silent_server() as port, pytest.raises(ConfigError, match="offline"):
        Store(f"http://127.0.0.1:{port}").check()
    assert time.monotonic() - start < 100


@pytest.mark.parametrize("uri", ["sqlite:///{home}/file/mlflow.db", "sqlite:///{home}/file", "nonsense", "foo://bar"])
def test_a_store_that_cannot_be_is_an_error_at_once(home: Path, uri: str) -> None:
    (home / "file").write_text("this is no database, and no folder either. " * 100)
    start = time.monotonic()
    with pytest.raises(ConfigError, match="offline"):
        Store(uri.format(home=home)).check()
    assert time.monotonic() - start < 60


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
            running.wait(300)
        assert running.stderr
        running.stderr.close()


def answer(url: str, body: dict[str, Any], seconds: float = 300) -> Any:
    """What the server says. It may still be starting: making its store takes MLflow minutes on a busy machine."""
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
def test_a_real_server_takes_runs_and_its_end_is_a_store_error(home: Path, tmp_path: Path, empty_store: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    shutil.copy(empty_store, folder / "server.db")
    complete(spec(0))
    with mlflow_server(folder) as port:
        store = Store(f"http://127.0.0.1:{port}")
        store.check()
        store.ingest(plan(spec(0)))
        assert store.ingest(plan(spec(0))) == 0
        assert runs(store)[spec(0).run_id].info.status == "FINISHED"
        assert points(folder / "server.db") == expected(spec(0), range(1, 5), (0, 2, 4))
    assert len(list((folder / "artifacts").rglob("spec.json"))) == 1
    complete(spec(1))
    start = time.monotonic()
    with pytest.raises(StoreError, match="mcpo runs sync"):
        store.ingest(plan(spec(0), spec(1)))
    assert time.monotonic() - start < 60


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
        assert "mcpo toy-s seed 0" in {run["info"]["run_name"] for run in found}
        taken = subprocess.run(
            [sys.executable, "-m", "mcpo_cli.main", "ui", "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert taken.returncode == 2
        assert f"mcpo ui --port {port + 1}" in taken.stderr
        ui.send_signal(signal.SIGINT)
        assert ui.wait(300) == 0
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
