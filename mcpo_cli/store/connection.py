"""A connection to an MLflow store: connecting, locking, searching and logging."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow.entities import Metric, RunTag
from mlflow.store.db.db_types import DATABASE_ENGINES
from mlflow.store.db.utils import create_sqlalchemy_engine
from mlflow.tracking import MlflowClient

from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.home import home
from mcpo_cli.redaction import redact
from mcpo_cli.store import pages
from mcpo_cli.store.address import OFFLINE
from mcpo_cli.store.points import Point, milliseconds

STATUS = {"running": "RUNNING", "done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
"""MLflow's status for each state of a started run."""
BATCH = 900
"""Metrics per call: MLflow accepts 1000 entities, which include the cursor's tags."""
NOTE = "mlflow.note.content"
"""The tag that MLflow's UI shows as the Markdown description of an experiment or run."""
LOCK_SECONDS = 60
_OPENED: dict[Path, tuple[int, int] | None] = {}
"""Identity of each SQLite file when this process opened it. MLflow keeps connections until the process exits and would
silently write to a removed file."""


class Connection:
    """An MLflow store.

    File locks make two operations atomic between processes: finding or creating a run, and creating the schema of a
    new SQLite file.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._home = home()
        name = self.database or self._home / "mlflow.db"
        self._setup = FileLock(f"{name}.setup.lock", timeout=LOCK_SECONDS)
        self._turn = FileLock(f"{name}.writer.lock", timeout=LOCK_SECONDS)
        self._mlflow: MlflowClient | None = None
        self._forget()

    @property
    def shown(self) -> str:
        """The URI without credentials, for messages."""
        return redact(self.uri)

    @property
    def is_server(self) -> bool:
        """Whether the store is reached through an MLflow server."""
        return self.uri.startswith(("http://", "https://"))

    @property
    def database(self) -> Path | None:
        """The file of an SQLite store; None for other stores."""
        is_file = self.uri.startswith("sqlite:///")
        return Path(self.uri.removeprefix("sqlite:///").partition("?")[0]) if is_file else None

    def check(self) -> None:
        """Reconnect, and create the schema of a new database.

        Raises:
            ConfigError: the store cannot be reached or written.
        """
        try:
            self._mlflow = None
            self._client()
        except Exception as error:
            raise ConfigError(
                f"the MLflow store {self.shown} cannot be used: {_reason(error)}",
                fix=f"compute.tracking_uri={OFFLINE} trains without it; mcpo runs sync uploads the runs later",
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._answering(fix="mcpo runs sync"), self._turn:
            yield

    @contextmanager
    def _answering(self, fix: str) -> Iterator[None]:
        """fix: the command that repeats what the block does."""
        try:
            yield
        except Exception as error:
            # Rows that were read but not sent must be read again, and cached objects may be gone.
            self._forget()
            raise StoreError(f"the MLflow store {self.shown} failed: {_reason(error)}", fix=fix) from error

    def _forget(self) -> None:
        """Clear the caches of the store's contents."""
        self._experiments: dict[str, str] = {}
        self._statuses: dict[str, str] = {}

    def _client(self) -> MlflowClient:
        if self.database in _OPENED and _identity(self.database) != _OPENED[self.database]:
            raise StoreError("its file was removed, or replaced by another, while it was in use")
        if self._mlflow is None:
            with self._setup:
                self._probe()
                client = MlflowClient(self.uri)
                client.search_experiments(max_results=1)  # the first call creates the schema of a new database
                self._mlflow = client
                if self.database:
                    _OPENED[self.database] = _identity(self.database)
        return self._mlflow

    def _probe(self) -> None:
        """Fail at once if the database cannot be used; MLflow itself would retry for minutes."""
        if re.split(r"[:+]", self.uri)[0] not in DATABASE_ENGINES:
            return
        with create_sqlalchemy_engine(self.uri).connect() as connection:
            if self.database:
                # WAL mode, which is stored in the file, lets the UI read while a process writes.
                for statement in ("PRAGMA busy_timeout = 20000", "PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE"):
                    connection.exec_driver_sql(statement)

    def _set_status(self, mlflow_id: str, status: str, end: float) -> None:
        if self._statuses.get(mlflow_id) == status:
            return
        if status == STATUS["running"]:
            self._client().update_run(mlflow_id, status=status)
        else:
            self._client().set_terminated(mlflow_id, status=status, end_time=milliseconds(end))
        self._statuses[mlflow_id] = status

    def _experiment(self, suite: str) -> str:
        if suite not in self._experiments:
            client = self._client()
            existing = client.get_experiment_by_name(suite)
            # A server chooses its own artifact location; a plain database would use the current folder.
            location = None if self.is_server else (self._home / "mlartifacts" / suite).as_uri()
            key = existing.experiment_id if existing else client.create_experiment(suite, artifact_location=location)
            # An existing note may have been edited by the user.
            if NOTE not in (existing.tags if existing else {}):
                client.set_experiment_tag(key, NOTE, pages.experiment_note(suite))
            self._experiments[suite] = key
        return self._experiments[suite]

    def _find(self, experiment: str, tag: str, value: str) -> Any:
        runs: list[Any] = self._client().search_runs([experiment], f"tags.`{tag}` = '{value}'")
        # A retried create request can leave two runs: keep the one with more tags, which holds the data.
        runs = sorted(runs, key=lambda run: (-len(run.data.tags), run.info.run_id))
        for duplicate in runs[1:]:
            self._client().delete_run(duplicate.info.run_id)
        return runs[0] if runs else None

    def _create(self, experiment: str, name: str, start: float, tags: dict[str, str]) -> Any:
        """A new run; later lookups use the first of `tags`. start: seconds since the epoch."""
        self._client().create_run(experiment, start_time=milliseconds(start), tags=tags, run_name=name)
        return self._find(experiment, *next(iter(tags.items())))

    def _artifact(self, mlflow_id: str, path: str) -> bytes | None:
        """The content of an artifact; None if it does not exist."""
        client, folder = self._client(), path.rpartition("/")[0]
        if path not in {file.path for file in client.list_artifacts(mlflow_id, folder or None)}:
            return None
        with tempfile.TemporaryDirectory() as target:
            return Path(client.download_artifacts(mlflow_id, path, target)).read_bytes()

    def _log(self, mlflow_id: str, points: Sequence[Point], last_tags: Mapping[str, Any]) -> None:
        """Log `points` in batches, and `last_tags` with the last batch."""
        for i in range(0, max(len(points), 1), BATCH):
            metrics = [Metric(*point) for point in points[i : i + BATCH]]
            tags = last_tags if i + BATCH >= len(points) else {}
            self._client().log_batch(mlflow_id, metrics=metrics, tags=run_tags(tags))


def _identity(file: Path) -> tuple[int, int] | None:
    """Device and inode, which change when the file is replaced; None if it does not exist."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def run_tags(tags: Mapping[str, Any]) -> list[RunTag]:
    """Tags as MLflow entities."""
    return [RunTag(key, str(value)) for key, value in tags.items()]


def _reason(error: Exception) -> str:
    """The first informative line of an error, without credentials."""
    lines = str(error).strip().splitlines()
    # SQLAlchemy puts the circumstances of an error on the line before the error itself.
    informative = [line for line in lines if not line.startswith("(raised as a result of")]
    return redact(informative[0] if informative else type(error).__name__)
