"""The MLflow store behind real and dead servers, with other processes, and in the UI."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpo_cli.errors import ConfigError
from mcpo_cli.trackers.mlflow import Store
from tests.errors import refused
from tests.store_runs import free_port


@contextmanager
def silent_server() -> Iterator[int]:
    """A server that accepts connections and never answers."""
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
