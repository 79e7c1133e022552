"""Fixtures of the store's tests."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mcpo_cli.trackers.mlflow import Store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MCPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def store(home: Path, empty_store: Path) -> "Store":
    from mcpo_cli.trackers import resolve
    from mcpo_cli.trackers.mlflow import Store

    with closing(sqlite3.connect(empty_store)) as source, closing(sqlite3.connect(home / "mlflow.db")) as target:
        source.backup(target)
    uri = resolve("")
    assert uri is not None
    return Store(uri)
