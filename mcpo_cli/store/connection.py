"""A connection to an MLflow store: reaching it, taking turns at it, and finding what is in it."""

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
"""MLflow's words for the states of a run that has begun."""
BATCH = 900
"""Metrics a call: MLflow takes 1000 entities, the tags of the cursor among them."""
NOTE = "mlflow.note.content"
"""The tag of an experiment or a run that MLflow's UI shows as its description, in Markdown."""
LOCK_SECONDS = 60
_OPENED: dict[Path, tuple[int, int] | None] = {}
"""Which file each SQLite store was when this process opened it. MLflow keeps its connections as long as the process
lives: to a file that was removed since it would go on writing without a word."""


class Connection:
    """An MLflow store.

    Processes take turns by file locks: looking up a run and creating it, and creating the schema of a new
    SQLite file, are each one step to the others.
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
        """The URI for messages."""
        return redact(self.uri)

    @property
    def is_server(self) -> bool:
        """Whether an MLflow server stands between us and the store."""
        return self.uri.startswith(("http://", "https://"))

    @property
    def database(self) -> Path | None:
        """The file of an SQLite store."""
        is_file = self.uri.startswith("sqlite:///")
        return Path(self.uri.removeprefix("sqlite:///").partition("?")[0]) if is_file else None

    def check(self) -> None:
        """Connect anew, and create the schema of a new database.

        Raises:
            ConfigError: the store cannot be reached or written now.
        """
        try:
            self._mlflow = None
            self._client()
        except Exception as error:
            raise ConfigError(
                f"the MLflow store {self.shown} cannot be used: {_reason(error)}",
                fix=f"compute.tracking_uri={OFFLINE} trains without it; mcpo runs sync brings the runs to it later",
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._answering(fix="mcpo runs sync"), self._turn:
            yield

    @contextmanager
    def _answering(self, fix: str) -> Iterator[None]:
        """fix: the command that does again what the block does."""
        try:
            yield
        except Exception as error:
            # What was read but not sent must be read again, and what was cached may be gone.
            self._forget()
            raise StoreError(f"the MLflow store {self.shown} failed: {_reason(error)}", fix=fix) from error

    def _forget(self) -> None:
        """Drop what is cached of the store."""
        self._experiments: dict[str, str] = {}
        self._statuses: dict[str, str] = {}

    def _client(self) -> MlflowClient:
        if self.database in _OPENED and _identity(self.database) != _OPENED[self.database]:
            raise StoreError("its file was removed, or replaced by another, while it was in use")
        if self._mlflow is None:
            with self._setup:
                self._probe()
                client = MlflowClient(self.uri)
                client.search_experiments(max_results=1)  # the first call makes the schema of a new database
                self._mlflow = client
                if self.database:
                    _OPENED[self.database] = _identity(self.database)
        return self._mlflow

    def _probe(self) -> None:
        """Fail where MLflow itself would go on trying for minutes: at a database that cannot be used."""
        if re.split(r"[:+]", self.uri)[0] not in DATABASE_ENGINES:
            return
        with create_sqlalchemy_engine(self.uri).connect() as connection:
            if self.database:
                # In WAL mode a writer and the readers (the UI) do not lock each other out; stays with the file.
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
            found = client.get_experiment_by_name(suite)
            # A server knows where its artifacts go; a database alone would put them into the current folder.
            location = None if self.is_server else (self._home / "mlartifacts" / suite).as_uri()
            name = found.experiment_id if found else client.create_experiment(suite, artifact_location=location)
            # A note that is there may be somebody's own.
            if NOTE not in (found.tags if found else {}):
                client.set_experiment_tag(name, NOTE, pages.experiment_note(suite))
            self._experiments[suite] = name
        return self._experiments[suite]

    def _find(self, experiment: str, tag: str, value: str) -> Any:
        found: list[Any] = self._client().search_runs([experiment], f"tags.`{tag}` = '{value}'")
        # A creation whose answer was lost is sent again: of two, the one that something was brought to stays.
        found = sorted(found, key=lambda run: (-len(run.data.tags), run.info.run_id))
        for twin in found[1:]:
            self._client().delete_run(twin.info.run_id)
        return found[0] if found else None

    def _create(self, experiment: str, name: str, start: float, tags: dict[str, str]) -> Any:
        """A new run, which is found by the first of `tags`. start: seconds since the epoch."""
        self._client().create_run(experiment, start_time=milliseconds(start), tags=tags, run_name=name)
        return self._find(experiment, *next(iter(tags.items())))

    def _artifact(self, mlflow_id: str, path: str) -> bytes | None:
        """The content of an artifact, None where there is none."""
        client, folder = self._client(), path.rpartition("/")[0]
        if path not in {file.path for file in client.list_artifacts(mlflow_id, folder or None)}:
            return None
        with tempfile.TemporaryDirectory() as target:
            return Path(client.download_artifacts(mlflow_id, path, target)).read_bytes()

    def _log(self, mlflow_id: str, points: Sequence[Point], last_tags: Mapping[str, Any]) -> None:
        """Log `points` in batches, and `last_tags` together with the last of them."""
        for i in range(0, max(len(points), 1), BATCH):
            metrics = [Metric(*point) for point in points[i : i + BATCH]]
            tags = last_tags if i + BATCH >= len(points) else {}
            self._client().log_batch(mlflow_id, metrics=metrics, tags=run_tags(tags))


def _identity(file: Path) -> tuple[int, int] | None:
    """What tells a file from another that takes its name; None where there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def run_tags(tags: Mapping[str, Any]) -> list[RunTag]:
    """Tags as MLflow takes them."""
    return [RunTag(key, str(value)) for key, value in tags.items()]


def _reason(error: Exception) -> str:
    """The first line of an error that says something of it, without credentials."""
    lines = str(error).strip().splitlines()
    # SQLAlchemy's remark on when it happened comes before what happened.
    said = [line for line in lines if not line.startswith("(raised as a result of")]
    return redact(said[0] if said else type(error).__name__)
