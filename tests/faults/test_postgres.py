"""A store on PostgreSQL, through a real MLflow server and without one (`make test-postgres`)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpo_cli.errors import StoreError
from mcpo_cli.trackers.mlflow import Store
from tests import store_runs
from tests.faults.faulty_server import mlflow_server
from tests.faults.postgres import DATABASES, Postgres, postgres
from tests.store_runs import differences

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


@pytest.fixture
def home(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return mcpo_home


@pytest.mark.parametrize("name", DATABASES)
def test_the_database_restarts_in_mid_run(name: str, database: Postgres, home: Path, tmp_path: Path) -> None:
    """While the database is down the store fails with a message; afterwards it has every point once."""
    if name == "direct":
        restart_in_mid_run(database.uri(name), name, database, home)
    else:
        with mlflow_server(tmp_path, database.uri(name)) as port:
            restart_in_mid_run(f"http://127.0.0.1:{port}", name, database, home)


def restart_in_mid_run(uri: str, name: str, database: Postgres, home: Path) -> None:
    spec = store_runs.spec(100 + DATABASES.index(name))
    plan, store = store_runs.plan(spec), Store(uri)
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
    assert differences(home, plan, database.uri(name)) == (0, 0)
