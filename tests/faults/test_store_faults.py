"""Stores that fail while runs go on: `mcpo runs sync` uploads the rest of the journals, each point once."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan
from mcpo_cli.scheduling import scheduler
from mcpo_cli.scheduling.forecast import forecast
from mcpo_cli.scheduling.progress import View
from mcpo_cli.trackers import follower
from mcpo_cli.trackers.mlflow import Store
from tests import store_runs
from tests.cli.test_scheduler import WORKER, Recorder
from tests.faults.faulty_server import DOWN, FAULTS, PATIENCE, Proxy, mlflow_server
from tests.store_runs import differences

pytestmark = pytest.mark.slow
MAKE = "import sys; from mcpo_cli.trackers.mlflow import Store; print('go', flush=True); Store(sys.argv[1]).check()"
LOCK = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print("locked", flush=True)
time.sleep(600)
"""


class Saboteur(Recorder):
    """Damages the store once a worker has begun."""

    def __init__(self, injure: Callable[[], None]) -> None:
        super().__init__()
        self._injure, self._done = injure, False

    def update(self, view: View) -> None:
        if not self._done and any(run.state == "running" for run in view.runs):
            self._done = True
            self._injure()


@pytest.fixture
def home(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", str(PATIENCE))
    monkeypatch.setenv("FAKE_SECONDS", "0.5")
    monkeypatch.setattr(follower, "EVERY_SECONDS", 0.2)
    return mcpo_home


def train(uri: str, injure: Callable[[], None], seeds: str = "0,1,2") -> tuple[Plan, list[str]]:
    """Train three runs whose store is damaged meanwhile; returns the notes."""
    plan = plans.from_overrides(["scale=smoke", f"seed={seeds}", "compute.parallel=2", f"compute.tracking_uri='{uri}'"])
    display = Saboteur(injure)
    outcomes = scheduler.run(forecast(plan), display, WORKER)
    assert [outcome.state for outcome in outcomes] == ["done"] * 3
    return plan, display.notes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[tuple[Proxy, Path]]:
    """A proxy in front of a real server, and the server's database."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(empty_store, folder / "server.db")
    with mlflow_server(folder) as port:
        proxy = Proxy(port)
        yield proxy, folder / "server.db"
        proxy.close()


@pytest.mark.parametrize(("number", "fault"), list(enumerate([DOWN, *FAULTS])))
def test_a_server_that_fails(number: int, fault: str, server: tuple[Proxy, Path], home: Path) -> None:
    proxy, database = server
    try:
        seeds = f"{3 * number},{3 * number + 1},{3 * number + 2}"
        plan, notes = train(proxy.uri, lambda: proxy.begin(fault), seeds)
    finally:
        proxy.heal()
    Store(proxy.uri).sync()
    assert set(Store(proxy.uri).sync().values()) == {0}
    if fault == DOWN:
        assert "training continues" in notes[0]
        assert "mcpo runs sync" in notes[-1]
    assert differences(home, plan, database) == (0, 0)


@pytest.fixture
def database(home: Path, empty_store: Path) -> Path:
    shutil.copy(empty_store, home / "mlflow.db")
    return home / "mlflow.db"


@contextmanager
def impatient() -> Iterator[None]:
    """SQLite waits for a lock for one second, not for the 20 that MLflow sets."""

    def shorter(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return statement.replace("busy_timeout = 20000", "busy_timeout = 1000"), parameters

    event.listen(Engine, "before_cursor_execute", shorter, retval=True)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", shorter)


def test_a_store_that_another_process_locks_until_the_plan_has_ended(database: Path, home: Path) -> None:
    holders: list[subprocess.Popen[str]] = []

    def lock() -> None:
        holder = subprocess.Popen([sys.executable, "-c", LOCK, str(database)], stdout=subprocess.PIPE, text=True)
        holders.append(holder)
        assert holder.stdout
        assert holder.stdout.readline() == "locked\n"

    with impatient():
        plan, notes = train(f"sqlite:///{database}", lock)
    (holder,) = holders
    holder.kill()
    holder.communicate()
    assert ["database is locked" in note for note in notes] == [True, False]
    assert "mcpo runs sync" in notes[-1]
    Store(f"sqlite:///{database}").sync()
    assert differences(home, plan, database) == (0, 0)


def test_killed_while_the_store_is_made(home: Path) -> None:
    """The file is complete or does not exist, and the same command continues."""
    database, killed = home / "mlflow.db", 0
    # At the start of the schema, and while the file is written, which may end before the test sees it.
    for sign in ("mlflow.db.lock", ".mlflow.db.*.part"):
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
    plan = store_runs.plan(store_runs.spec())
    store_runs.complete(plan.runs[0].spec)
    Store(f"sqlite:///{database}").sync()
    assert differences(home, plan, database) == (0, 0)
