"""A store on PostgreSQL, through a real MLflow server and without one (`make test-postgres`)."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpo_cli.errors import StoreError
from mcpo_cli.trackers.mlflow import Store
from tests import store_runs
from tests.cli.conftest import MCPO, InProcess
from tests.faults.faulty_server import mlflow_server
from tests.faults.postgres import USER, Postgres, postgres
from tests.store_runs import differences

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
WRITERS = 4
THROUGH = ["an MLflow server", "no server"]


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


@pytest.fixture(scope="module")
def server(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MLflow server in front of the database."""
    with mlflow_server(tmp_path_factory.mktemp("server"), database.uri("behind_a_server")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def home(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return mcpo_home


def address(through: str, database: Postgres, server: str) -> str:
    return server if through == THROUGH[0] else behind(through, database)


def behind(through: str, database: Postgres) -> str:
    """The address of the database that the points arrive in."""
    return database.uri("behind_a_server" if through == THROUGH[0] else "direct")


@pytest.mark.parametrize("through", THROUGH)
def test_the_database_restarts_in_mid_run(through: str, database: Postgres, server: str, home: Path) -> None:
    """While the database is down the store fails with a message; afterwards it has every point once."""
    spec = store_runs.spec(100 + THROUGH.index(through))
    plan, store = store_runs.plan(spec), Store(address(through, database, server))
    attempt = store_runs.begin(spec)
    store_runs.train(attempt, range(1, 3))
    store_runs.evaluate(attempt, 0, 2)
    attempt.durable(2)
    store.ingest(plan)
    database.stop()
    store_runs.train(attempt, range(3, 5))
    store_runs.evaluate(attempt, 4)
    attempt.durable(4)
    with pytest.raises(StoreError) as caught:
        store.ingest(plan)
    assert "\n" not in caught.value.message
    database.start()
    attempt.end("done")
    store.ingest(plan)
    assert store.ingest(plan) == 0
    assert differences(home, plan, behind(through, database)) == (0, 0)


GUEST = "create role guest login; grant pg_read_all_data to guest"
INJURIES = {
    "nobody may write": (GUEST, "drop owned by guest; drop role guest"),
    "a table is gone": ("alter table metrics rename to lost", "alter table lost rename to metrics"),
    "an error that acts in a terminal": (
        "create function no() returns trigger language plpgsql as "
        "$$ begin raise exception E'\\x1b[2Jpassword=planted\\nmore'; end $$; "
        "create trigger no before insert on metrics for each row execute function no()",
        "drop trigger no on metrics; drop function no",
    ),
}
"""Statements that break the database, and those that repair it."""


@pytest.mark.parametrize("injury", INJURIES)
def test_a_database_that_refuses(injury: str, database: Postgres, here: InProcess) -> None:
    """One message of one line, without control characters; after the repair the store has every point."""
    number, (injure, heal) = list(INJURIES).index(injury), INJURIES[injury]
    plan, uri = store_runs.plan(store_runs.spec(300 + number)), database.uri("direct")
    Store(uri).check()
    store_runs.complete(plan.cells[0].spec)
    store_runs.origin(plan.cells[0].spec)
    database.sql(injure)
    try:
        user = "guest" if GUEST in injure else USER
        # Another name has its own connections.
        done = here("runs", "sync", MLFLOW_TRACKING_URI=f"{uri.replace(USER, user)}?application_name={number}")
    finally:
        database.sql(heal)
    assert done.returncode in (2, 4), done.stderr
    assert len(re.findall("^error: ", done.stderr, re.MULTILINE)) == 1
    assert "bug in mcpo" not in done.stderr
    assert not {"\x1b", "planted"} & {*done.stderr, *done.stderr.split("=")}
    assert here("runs", "sync", MLFLOW_TRACKING_URI=uri).returncode == 0
    assert differences(here.home, plan, uri) == (0, 0)


@pytest.mark.parametrize("through", THROUGH)
def test_runs_are_synced_by_several_processes_at_once(
    through: str, database: Postgres, server: str, home: Path
) -> None:
    """The store has each point once, and a copy of the home sends no more."""
    uri = address(through, database, server)
    specs = [store_runs.spec(200 + 10 * THROUGH.index(through) + seed) for seed in range(3)]
    for spec in specs:
        store_runs.complete(spec)
        store_runs.origin(spec)
    env = os.environ | {"MLFLOW_TRACKING_URI": uri}
    running = [subprocess.Popen([*MCPO, "runs", "sync"], env=env) for _ in range(WRITERS)]
    assert [process.wait(600) for process in running] == [0] * WRITERS
    assert set(Store(uri).sync().values()) == {0}
    assert differences(home, store_runs.plan(*specs), behind(through, database)) == (0, 0)
