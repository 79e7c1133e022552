"""A store on PostgreSQL, through a real MLflow server and without one (`make test-postgres`)."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from mcpo_cli.errors import StoreError
from mcpo_cli.trackers.mlflow import Store
from tests import store_runs
from tests.faults.faulty_server import mlflow_server
from tests.store_runs import differences, free_port

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
"""Debian's folders of the programs of each version; they are not on the PATH."""
USER = "postgres"
DATABASES = ("behind_a_server", "direct")
"""Two databases: a server gives its experiments artifact locations that only a server can reach."""


class Postgres:
    """A running server on loopback with one user, who has no password."""

    def __init__(self, folder: Path) -> None:
        self._data, self.port = folder / "data", free_port()
        self._run("initdb", "--username", USER, "--auth", "trust", "--encoding", "UTF8", "--no-sync")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        self._options = ("-w", "-o", options, "-l", str(folder / "log"))
        self._run("pg_ctl", "start", *self._options)
        for name in DATABASES:
            words = ["--host=127.0.0.1", f"--port={self.port}", f"--username={USER}", name]
            subprocess.run([str(PROGRAMS[-1] / "createdb"), *words], check=True, cwd="/")

    def uri(self, name: str) -> str:
        """The address of one of its two databases, `behind_a_server` and `direct`."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{name}"

    def stop(self) -> None:
        """Cut all connections at once, as a crash does."""
        self._run("pg_ctl", "stop", "-m", "immediate", "-w")

    def start(self) -> None:
        self._run("pg_ctl", "start", *self._options)

    def _run(self, program: str, *words: str) -> None:
        # PostgreSQL refuses to run as root.
        command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []
        command += [str(PROGRAMS[-1] / program), "-D", str(self._data), *words]
        subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    # pytest's folders are closed to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="mcpo-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, USER, USER)
    server = Postgres(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture
def home(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return mcpo_home


@pytest.mark.parametrize("name", DATABASES)
def test_the_database_restarts_in_mid_run(name: str, database: Postgres, home: Path, tmp_path: Path) -> None:
    """While the database is down the store fails with a message; afterwards it has every point once."""
    spec = store_runs.spec(100 + DATABASES.index(name))
    plan, attempt = store_runs.plan(spec), store_runs.begin(spec)
    with nullcontext() if name == "direct" else mlflow_server(tmp_path, database.uri(name)) as port:
        store = Store(f"http://127.0.0.1:{port}" if port else database.uri(name))
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
