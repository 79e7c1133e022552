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
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException

from mcpo_cli.config.plan import about
from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.home import home
from mcpo_cli.redaction import redact
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.trackers import OFFLINE, descriptions, views

Point = tuple[str, float, float, int]
"""Name, value, time in seconds since the epoch, global step."""
BATCH, MOST_PARAMS = 900, 100
"""Points and parameters per call: MLflow accepts 1000 entities, tags included, of which 100 may be parameters."""
STATUS = {"running": "RUNNING", "done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
"""MLflow's status for each state of a started run."""
SOURCE, USER, NOTE = "mlflow.source.name", "mlflow.user", "mlflow.note.content"
"""The tags that MLflow's UI shows as source, user, and Markdown description of an experiment or run."""
SUITE = "suite"
"""The tag with the suite of a run, and of an experiment, which a person may rename."""
UNNAMEABLE = re.compile(r"[^\w./ -]")
"""Characters that MLflow refuses in the name of a metric; they become `_`."""
SYNC = "mcpo runs sync"
LOCK_SECONDS = 60
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
"""Schemes of the databases that MLflow can use as a store."""


class Connection:
    """An MLflow store.

    A file lock makes these operations atomic between processes of one home: to find or create an experiment or a run,
    and to create the schema of a new SQLite file.
    """

    def __init__(self, uri: str) -> None:
        self.uri, self.home = uri, home()
        self.shown = redact(uri)
        """The URI without credentials, for messages."""
        self.is_server = uri.startswith(("http://", "https://"))
        """True if the store is reached through an MLflow server."""
        is_file = uri.startswith("sqlite:///")
        self.database = Path(uri.removeprefix("sqlite:///").partition("?")[0]) if is_file else None
        """The file of an SQLite store; None for other stores."""
        self.turn = FileLock(f"{self.database or self.home / 'mlflow.db'}.lock", timeout=LOCK_SECONDS)
        self._mlflow: MlflowClient | None = None
        self._forget()

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
            StoreError: it was deleted in the store.
        """
        if suite not in self._experiments:
            location = (self.home / "mlartifacts" / suite).as_uri()
            with self.turn:
                stored: Any = self._of_suite(suite) or self.client().get_experiment_by_name(suite)
                if stored is None:
                    # A server chooses its own artifact location; a plain database would use the current folder.
                    try:
                        self.client().create_experiment(suite, None if self.is_server else location)
                    except MlflowException as error:
                        # Another machine made it meanwhile, or an earlier request whose answer was lost.
                        if error.error_code != "RESOURCE_ALREADY_EXISTS":
                            raise
                    stored = self.client().get_experiment_by_name(suite)
                    self.client().set_experiment_tag(stored.experiment_id, NOTE, ". ".join(filter(None, about(suite))))
                self.show(str(stored.experiment_id), {**views.tags(), SUITE: suite})
            if stored.lifecycle_stage == "deleted":
                raise StoreError(f"the experiment '{suite}' was deleted in {self.shown}", fix="restore it in mcpo ui")
            self._experiments[suite] = str(stored.experiment_id)
        return self._experiments[suite]

    def _of_suite(self, suite: str) -> Any:
        """The experiment that was made for a suite, whatever a person calls it now; None without any."""
        experiments = self.client().search_experiments(
            filter_string=f"tags.`{SUITE}` = '{suite}'", view_type=ViewType.ALL
        )
        return next(iter(experiments), None)

    def show(self, experiment: str, tags: Mapping[str, str]) -> None:
        """Give an experiment the views that it lacks (`views.py`); a person may have changed other views."""
        for key in tags.keys() - self.client().get_experiment(experiment).tags.keys():
            self.client().set_experiment_tag(experiment, key, tags[key])

    def find(self, experiment: str, tag: str, value: str) -> Any:
        """The run whose `tag` is `value`; None without any. A repeated request may have made two: one is deleted."""
        matches = self.client().search_runs([experiment], f"tags.`{tag}` = '{value}'")
        # The run with more tags holds the data.
        runs = sorted(matches, key=lambda run: (-len(run.data.tags), run.info.run_id))
        for duplicate in runs[1:]:
            self.client().delete_run(duplicate.info.run_id)
        return runs[0] if runs else None

    def search(self, query: str, order: str = "", page: int = 200) -> Iterator[Any]:
        """The runs of all experiments that fit a query of MLflow. page: runs of a request."""
        experiments, token = [experiment.experiment_id for experiment in self.client().search_experiments()], None
        while token != "":
            answer = self.client().search_runs(
                experiments, query, max_results=page, order_by=[order] if order else None, page_token=token
            )
            yield from answer
            token = answer.token or ""

    def create(self, experiment: str, name: str, key: tuple[str, str], start: float, tags: Mapping[str, str]) -> Any:
        """A new run, identified by the tag and value `key`. start: in seconds since the epoch."""
        facts = {SOURCE: "mcpo", "mlflow.source.type": "LOCAL"}
        with suppress(OSError, KeyError):  # a user id without a name
            facts[USER] = getpass.getuser()
        self.client().create_run(experiment, milliseconds(start), {**dict([key]), **facts, **tags}, name)
        return self.find(experiment, *key)

    def describe(self, mlflow_id: str, note: str) -> None:
        """Set the description of a run, unless a person wrote the current one."""
        text = self.client().get_run(mlflow_id).data.tags.get(NOTE, descriptions.OURS)
        if descriptions.OURS in text:
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
        settings = [Param(key, str(value)) for key, value in (params or {}).items()]
        for i in range(0, len(settings), MOST_PARAMS):
            self.client().log_batch(mlflow_id, params=settings[i : i + MOST_PARAMS])
        metrics = [Metric(UNNAMEABLE.sub("_", name), value, milliseconds(at), step) for name, value, at, step in points]
        for i in range(0, len(metrics), BATCH):
            self.client().log_batch(mlflow_id, metrics=metrics[i : i + BATCH])
        if tags:
            self.client().log_batch(mlflow_id, tags=[RunTag(key, str(value)) for key, value in tags.items()])

    def set_status(self, mlflow_id: str, status: str, end: float) -> None:
        """Set the status of an MLflow run. end: when it ended, in seconds since the epoch, if it did."""
        if self._statuses.get(mlflow_id) == status:
            return
        if status == STATUS["running"]:
            self.client().update_run(mlflow_id, status=status)
        else:
            self.client().set_terminated(mlflow_id, status, milliseconds(end))
        self._statuses[mlflow_id] = status

    def _forget(self) -> None:
        """Clear the caches of the store's contents."""
        self._experiments: dict[str, str] = {}
        self._statuses: dict[str, str] = {}

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


def milliseconds(seconds: float) -> int:
    """Seconds in MLflow's unit of time."""
    return round(seconds * 1000)


def reason(error: Exception) -> str:
    """The first informative line of an error, without credentials."""
    lines = str(error).strip().splitlines()
    # SQLAlchemy puts the circumstances of an error on the line before the error itself.
    informative = [line for line in lines if not line.startswith("(raised as a result of")]
    return redact(informative[0] if informative else type(error).__name__)
