"""Fixtures that every folder of tests shares."""

import gc
import importlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mcpo_cli import plugin_files, plugins

# Set before anything imports torch, and for all processes that tests start. Tests are many small computations, in which
# a second thread mostly waits. Processes share their compiled code.
os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
sys.dont_write_bytecode = False
# Loaded modules and collected tests stay; searching them for garbage again and again takes a quarter of that time.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """hypothesis has no deadline, so that a busy machine fails no property. verl's environment lacks hypothesis."""
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        settings.register_profile("mcpo", settings.default, deadline=None)
        settings.load_profile("mcpo")


def pytest_collection_finish() -> None:
    """From here on, garbage collection searches only the objects that tests make."""
    gc.freeze()
    # Seldom, because tests leave little garbage: a twenty-fifth of their time.
    gc.set_threshold(100_000, 50, 100)
    gc.enable()


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores the environment that `main` sets for child processes, so that other tests do not see it."""
    monkeypatch.setenv("PYTHONSAFEPATH", os.environ.get("PYTHONSAFEPATH", ""))


@pytest.fixture(scope="module", autouse=True)
def no_pool_left() -> Iterator[None]:
    """Ends the pools of graders that a training process keeps, because other tests of this process count processes."""
    yield
    grading = sys.modules.get("mcpo_cli.grading")
    while grading and grading._pools:
        _, pool = grading._pools.popitem()
        pool.close()


@pytest.fixture
def mcpo_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty MCPO_HOME."""
    monkeypatch.setenv("MCPO_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def module_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An MCPO_HOME that the tests of a file share."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("MCPO_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def base_policies(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The `cache` in the homes of tests that train as users do, so that each base policy is warmed up once.

    The processes of a parallel run share it: link it, do not copy it.
    """
    return shared_folder(tmp_path_factory, worker_id, "cache")


def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str, name: str) -> Path:
    """A folder that all processes of a parallel run share."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder if worker_id == "master" else folder.parent) / name
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite store with its schema, made once: it takes seconds."""
    from mcpo_cli.trackers.mlflow import Store

    folder = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCPO_HOME", str(folder))
        Store(f"sqlite:///{folder}/mlflow.db").check()
    with closing(sqlite3.connect(folder / "mlflow.db")) as made, closing(sqlite3.connect(folder / "one.db")) as whole:
        made.backup(whole)
    return folder / "one.db"


@pytest.fixture
def plugin_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty folder of MCPO_PLUGINS, for this process and those that it starts."""
    folder = tmp_path / "plug-ins"
    folder.mkdir()
    monkeypatch.setenv(plugin_files.VARIABLE, str(folder))
    monkeypatch.setattr(plugin_files, "__path__", [str(folder)])
    forget_plugins()
    yield folder
    forget_plugins()


def forget_plugins() -> None:
    """Clear the caches of all lookups by name, as in a new process."""
    importlib.invalidate_caches()
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{plugin_files.__name__}."):
            del sys.modules[name]
        elif name.startswith("mcpo_cli"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
    plugins._problems.clear()
