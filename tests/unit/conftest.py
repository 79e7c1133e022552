"""Fixtures of the tests of stores and of comparisons."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mcpo_cli.config.plan import Plan
    from mcpo_cli.measures.frames import Runs
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


@pytest.fixture(scope="module")
def table1(module_home: Path) -> "Plan":
    """Three seeds of table1 on one model, each from its own base policy; no test changes them."""
    from tests import fakes

    return fakes.table1()


@pytest.fixture
def runs(table1: "Plan") -> "Runs":
    from mcpo_cli.measures.frames import Runs

    return Runs(table1)
