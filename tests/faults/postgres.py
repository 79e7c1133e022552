"""A separate PostgreSQL server on loopback for the tests: made, started, restarted and removed here."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store_runs import free_port

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
"""Debian's folders of the programs of each version; they are not on the PATH."""
USER = "postgres"
DATABASES = ("behind_a_server", "direct")
"""Two databases: a server gives its experiments artifact locations that only a server can reach."""


class Postgres:
    """A running server with one user, who has no password."""

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


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server that ends with the block."""
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
