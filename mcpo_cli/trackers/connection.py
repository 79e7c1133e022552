"""A connection to an MLflow store: connect, find or create experiments and runs, log."""

import getpass
import re
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.home import home
from mcpo_cli.redaction import redact
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.trackers import OFFLINE, descriptions
from mcpo_cli.trackers.contents import Point, milliseconds

BATCH, MOST_PARAMS = 900, 100
"""Points and parameters per call: MLflow accepts 1000 entities, tags included, of which 100 may be parameters."""
PARENT = "mlflow.parentRunId"
RUN_ID, PLAN_ID = "mcpo.run_id", "mcpo.plan_id"
"""The tags that identify MLflow runs: those of our runs, and those of the plans above them."""
SUITE = "suite"
"""The tag with the suite of an MLflow run."""
SOURCE, USER = "mlflow.source.name", "mlflow.user"
"""The tags that MLflow's UI shows as Source and User."""
NOTE = "mlflow.note.content"
"""The tag that MLflow's UI shows as the Markdown description of an experiment or run."""
UNNAMEABLE = re.compile(r"[^\w./ -]")
"""Characters that MLflow refuses in the name of a metric; they become `_`."""
EXISTS = "RESOURCE_ALREADY_EXISTS"
SYNC = "mcpo runs sync"
DOCTOR = "mcpo doctor, which checks the store; the same command then sends what is missing"
LOCK_SECONDS = 60
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
"""Schemes of the databases that MLflow can use as a store."""


class Connection:
    """An MLflow store.

    A file lock makes these operations atomic between processes of one home: to find or create an experiment or a run,
    and to create the schema of a new SQLite file.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.home = home()
        self.turn = FileLock(f"{self.database or self.home / 'mlflow.db'}.lock", timeout=LOCK_SECONDS)
        self._mlflow: MlflowClient | None = None
        self._experiments: dict[str, str] = {}

    @property
    def shown(self) -> str:
        """The URI without credentials, for messages."""
        return redact(self.uri)

    @property
    def is_server(self) -> bool:
        """True if the store is reached through an MLflow server."""
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
        self._mlflow = None
        try:
            self.client()
        except Exception as error:
            raise ConfigError(
                f"the MLflow store {self.shown} cannot be used: {reason(error)}",
                fix=f"compute.tracking_uri={OFFLINE} trains without it; {SYNC} uploads the runs later",
            ) from error

    @contextmanager
    def answering(self, fix: str = SYNC) -> Iterator[None]:
        """Turn every error of the block into a StoreError. fix: the command that sends the rest."""
        try:
            self.client()
            yield
        except Exception as error:
            # Rows that were read but not sent must be read again, and cached objects may be gone.
            self._forget()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"the MLflow store {self.shown} failed: {reason(error)}", fix=fix) from error

    def client(self) -> MlflowClient:
        """MLflow's client, connected."""
        if self._mlflow is None:
            with self.turn:
                if self.database and not self.database.exists():
                    _create(self.database)
                self._probe()
                self._mlflow = MlflowClient(self.uri)
                self._mlflow.search_experiments(max_results=1)  # the first call creates the schema of other databases
        if self.database and not self.database.exists():
            # MLflow keeps connections, and would silently write to the removed file.
            raise StoreError(f"the MLflow store {self.shown} failed: its file was removed", fix=SYNC)
        return self._mlflow

    def experiment(self, suite: str) -> str:
        """The id of a suite's experiment, which is created if it is missing.

        Raises:
            StoreError: it was deleted in the store, or its files belong to a home that moved.
        """
        if suite not in self._experiments:
            with self.turn:
                found = self.client().get_experiment_by_name(suite) or self._new_experiment(suite)
            if found.lifecycle_stage == "deleted":
                raise StoreError(f"the experiment '{suite}' was deleted in {self.shown}", fix="restore it in mcpo ui")
            is_ours = self.database is not None and self.database.parent.resolve() == self.home
            place = found.artifact_location
            if is_ours and place.startswith("file:") and place != self._location(suite):
                raise StoreError(
                    f"{self.shown} has the files of '{suite}' in {place}: this home was moved",
                    fix=f"rm {self.database}, then {SYNC}, which rebuilds the store from the journals",
                )
            self._experiments[suite] = str(found.experiment_id)
            if found.tags.get(NOTE, "") in ("", descriptions.experiment_note(suite)):
                # Only now its id is known.
                note = descriptions.experiment_note(suite, found.experiment_id)
                self.client().set_experiment_tag(found.experiment_id, NOTE, note)
        return self._experiments[suite]

    def find(self, experiment: str, tag: str, value: str) -> Any:
        """The run whose `tag` is `value`; None without any. A repeated request may have made two: one is deleted."""
        found = self.client().search_runs([experiment], f"tags.`{tag}` = '{value}'")
        # The one with more tags holds the data.
        runs = sorted(found, key=lambda run: (-len(run.data.tags), run.info.run_id))
        for duplicate in runs[1:]:
            self.client().delete_run(duplicate.info.run_id)
        return runs[0] if runs else None

    def create(self, experiment: str, name: str, key: tuple[str, str], start: float, tags: Mapping[str, str]) -> Any:
        """A new run, identified by the tag and value `key`. start: in seconds since the epoch."""
        about = {SOURCE: "mcpo", "mlflow.source.type": "LOCAL"}
        with suppress(OSError, KeyError):  # a user id without a name
            about[USER] = getpass.getuser()
        self.client().create_run(experiment, milliseconds(start), {**dict([key]), **about, **tags}, name)
        return self.find(experiment, *key)

    def describe(self, mlflow_id: str, note: str) -> None:
        """Set the description of a run, unless a person wrote the current one."""
        there = self.client().get_run(mlflow_id).data.tags.get(NOTE, descriptions.OURS)
        if descriptions.OURS in there:
            self.log(mlflow_id, tags={NOTE: note})

    def log(
        self,
        mlflow_id: str,
        points: Sequence[Point] = (),
        tags: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Log to a run in batches; the last holds `tags`, so that a cursor among them never precedes its points.

        MLflow keeps one copy of a point that is sent twice.
        """
        pairs = list((params or {}).items())
        for i in range(0, len(pairs), MOST_PARAMS):
            some = [Param(key, str(value)) for key, value in pairs[i : i + MOST_PARAMS]]
            self.client().log_batch(mlflow_id, params=some)
        for i in range(0, max(len(points), 1), BATCH):
            metrics = [
                Metric(UNNAMEABLE.sub("_", name), value, at, step) for name, value, at, step in points[i : i + BATCH]
            ]
            last = tags if tags and i + BATCH >= len(points) else {}
            labels = [RunTag(key, str(value)) for key, value in last.items()]
            self.client().log_batch(mlflow_id, metrics=metrics, tags=labels)

    def _forget(self) -> None:
        """Clear the caches of the store's contents."""
        self._experiments.clear()

    def _new_experiment(self, suite: str) -> Any:
        """Create an experiment that did not exist a moment ago; another machine may have made it since."""
        # A server chooses its own artifact location; a plain database would use the current folder.
        location = None if self.is_server else self._location(suite)
        try:
            self.client().create_experiment(suite, location, {NOTE: descriptions.experiment_note(suite)})
        except MlflowException as error:
            if error.error_code != EXISTS:
                raise
        return self.client().get_experiment_by_name(suite)

    def _location(self, suite: str) -> str:
        """The address of a suite's artifacts in this home."""
        return (self.home / "mlartifacts" / suite).as_uri()

    def _probe(self) -> None:
        """Fail at once if a database cannot be used; MLflow itself would retry for minutes."""
        if re.split(r"[:+]", self.uri)[0] not in DATABASES:
            return
        engine = sqlalchemy.create_engine(self.uri)
        try:
            with engine.connect() as connection:
                if self.database:
                    # In WAL mode, which the file stores, the UI can read while a process writes.
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
        finally:
            engine.dispose()


def _create(database: Path) -> None:
    """Create an SQLite file with MLflow's schema.

    MLflow's migrations run in memory, because each waits for the disk several times. The file is written at once, so
    that a kill does not leave a part of it.
    """
    name = f"file:{uuid.uuid4().hex}?mode=memory&cache=shared"
    with closing(sqlite3.connect(name, uri=True)) as memory:
        MlflowClient(f"sqlite:///{name}&uri=true").search_experiments(max_results=1)
        write_atomic(database, memory.serialize())


def reason(error: Exception) -> str:
    """The first informative line of an error, without credentials."""
    lines = str(error).strip().splitlines()
    # SQLAlchemy puts the circumstances of an error on the line before the error itself.
    informative = [line for line in lines if not line.startswith("(raised as a result of")]
    return redact(informative[0] if informative else type(error).__name__)
