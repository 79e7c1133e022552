"""A connection to an MLflow store: connecting, locking, searching and logging."""

import re
import sqlite3
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow.entities import LifecycleStage, Metric, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.db.db_types import DATABASE_ENGINES
from mlflow.store.db.utils import create_sqlalchemy_engine
from mlflow.store.tracking.dbmodels.models import SqlExperiment, SqlRun
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracking import MlflowClient
from mlflow.utils.file_utils import local_file_uri_to_path
from sqlalchemy import Engine, event, func, update

from mcpo_cli.config.schema import digest
from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.home import home
from mcpo_cli.redaction import redact
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.store import pages, rows
from mcpo_cli.store.address import OFFLINE
from mcpo_cli.store.points import Point, milliseconds

STATUS = {"running": "RUNNING", "done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
"""MLflow's status for each state of a started run."""
BATCH = 900
"""Metrics per call: MLflow accepts 1000 entities, which include the cursor's tags."""
PARENT = "mlflow.parentRunId"
RUN_ID, PLAN_ID = "mcpo.run_id", "mcpo.plan_id"
"""The tags by which MLflow runs are found: those of our runs, and those of the plans above them."""
SUITE = "suite"
"""The tag with the suite that an MLflow run stands under."""
SUITES = "suites"
"""The tag with all suites that use a run."""
PAGE = 1000
"""Runs per page of a search."""
NOTE = "mlflow.note.content"
"""The tag that MLflow's UI shows as the Markdown description of an experiment or run."""
NOTED = "mcpo.note"
"""The tag of a run with the digest of the last description that was written here."""
EXISTS = "RESOURCE_ALREADY_EXISTS"
REFUSALS = {"BAD_REQUEST", "INVALID_PARAMETER_VALUE", "INVALID_STATE", EXISTS, "RESOURCE_DOES_NOT_EXIST"}
"""MLflow's error codes that concern one run, not the store."""
SYNC = "mcpo runs sync"
DOCTOR = "mcpo doctor, which checks the store; the same command then sends or fetches what is missing"
LOCK_SECONDS = 60
_OPENED: dict[Path, tuple[int, int] | None] = {}
"""Identity of each SQLite file when this process opened it. MLflow keeps connections until the process exits and would
silently write to a removed file."""


@dataclass
class Listing:
    """The active runs of an experiment."""

    ids: set[str] = field(default_factory=set)
    """Their MLflow ids."""
    runs: dict[tuple[str, str], list[Any]] = field(default_factory=lambda: defaultdict(list))
    """Tag and its value -> the runs that have it, for the tags that runs are looked up by."""


class Connection:
    """An MLflow store.

    File locks make two operations atomic between processes: finding or creating an experiment or a run, and creating
    the schema of a new SQLite file.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._home = home()
        name = self.database or self._home / "mlflow.db"
        self._setup = FileLock(f"{name}.setup.lock", timeout=LOCK_SECONDS)
        self._turn = FileLock(f"{name}.writer.lock", timeout=LOCK_SECONDS)
        self._mlflow: MlflowClient | None = None
        self._engine: Engine | None = None
        self.notes: list[str] = []
        """What was repaired in the store."""
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
                f"the MLflow store {self.shown} cannot be used: {reason(error)}",
                fix=f"compute.tracking_uri={OFFLINE} trains without it; mcpo runs sync uploads the runs later",
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._answering(fix=SYNC), self._turn:
            yield

    @contextmanager
    def _answering(self, fix: str) -> Iterator[None]:
        """fix: the command that repairs what a failing block leaves."""
        try:
            yield
        except Exception as error:
            # Rows that were read but not sent must be read again, and cached objects may be gone.
            self._forget()
            raise StoreError(f"the MLflow store {self.shown} failed: {reason(error)}", fix=fix) from error

    def _forget(self) -> None:
        """Clear the caches of the store's contents."""
        self._experiments: dict[str, str] = {}
        self._listed: dict[str, Listing] = {}
        self._statuses: dict[str, str] = {}

    def _client(self) -> MlflowClient:
        if self.database in _OPENED and _identity(self.database) != _OPENED[self.database]:
            raise StoreError("its file was removed, or replaced by another, while it was in use")
        if self._mlflow is None:
            with self._setup:
                if self.database and not self.database.exists():
                    self._make(self.database)
                self._probe()
                client = MlflowClient(self.uri)
                client.search_experiments(max_results=1)  # the first call creates the schema of a new database
                self._share_engine()
                self._mlflow = client
        return self._mlflow

    def _make(self, database: Path) -> None:
        """Create an SQLite file with MLflow's schema.

        MLflow's 70 migrations run in memory, as each waits for the disk several times, and the file is written whole.
        """
        name = f"file:{uuid.uuid4().hex}?mode=memory&cache=shared"
        with closing(sqlite3.connect(name, uri=True)) as memory:
            SqlAlchemyStore(f"sqlite:///{name}&uri=true", (self._home / "mlartifacts").as_uri()).engine.dispose()
            write_atomic(database, memory.serialize())

    @property
    def _is_database(self) -> bool:
        return re.split(r"[:+]", self.uri)[0] in DATABASE_ENGINES

    def _probe(self) -> None:
        """Fail at once if the database cannot be used; MLflow itself would retry for minutes."""
        if not self._is_database:
            return
        engine = create_sqlalchemy_engine(self.uri)
        try:
            with engine.connect() as connection:
                if self.database:
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
        finally:
            engine.dispose()

    def _share_engine(self) -> None:
        """Use MLflow's own connections to a database, so that both find it prepared in the same way."""
        if not self._is_database:
            return
        self._engine = SqlAlchemyStore(self.uri, self._location("")).engine
        if self.database:
            if not event.contains(self._engine, "connect", _prepare):
                event.listen(self._engine, "connect", _prepare)
            _OPENED[self.database] = _identity(self.database)
        self._engine.dispose()  # those opened until now were not prepared

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
            # Several commands of this home may meet a store without the experiment.
            with self._turn:
                self._experiments[suite] = self._prepared_experiment(suite)
        return self._experiments[suite]

    def _prepared_experiment(self, suite: str) -> str:
        client = self._client()
        existing = client.get_experiment_by_name(suite) or self._new_experiment(suite)
        if existing.lifecycle_stage == LifecycleStage.DELETED:
            client.restore_experiment(existing.experiment_id)
            self.notes.append(f"the experiment '{suite}' had been deleted from the store: restored with its runs")
        self._relocate(existing)
        # An existing note may have been edited by the user.
        if NOTE not in existing.tags:
            client.set_experiment_tag(existing.experiment_id, NOTE, pages.experiment_note(suite))
        return str(existing.experiment_id)

    def _new_experiment(self, suite: str) -> Any:
        """An experiment that was not there a moment ago; another machine may have made it since."""
        # A server chooses its own artifact location; a plain database would use the current folder.
        location = None if self.is_server else self._location(suite)
        try:
            return self._client().get_experiment(self._client().create_experiment(suite, location))
        except MlflowException as error:
            if error.error_code != EXISTS:
                raise
            return self._client().get_experiment_by_name(suite)

    def _location(self, suite: str) -> str:
        """The address of a suite's artifacts in this home."""
        return (self._home / "mlartifacts" / suite).as_uri()

    def _relocate(self, experiment: Any) -> None:
        """Point an experiment in a database to this home's artifacts, if those it points to are in a home that moved.

        A database inside this home moves with it; one elsewhere may serve several homes.
        """
        old, new = experiment.artifact_location, self._location(experiment.name)
        if self._engine is None or old == new or not old.startswith("file:"):
            return
        is_ours = self.database is not None and self.database.parent.resolve() == self._home
        if is_ours or not Path(local_file_uri_to_path(old)).exists():
            experiments, runs = SqlExperiment.__table__, SqlRun.__table__
            moved = new + func.substr(runs.c.artifact_uri, len(old) + 1)
            here = runs.c.artifact_uri.startswith(f"{old}/", autoescape=True)
            key = int(experiment.experiment_id)
            with self._engine.begin() as connection:
                connection.execute(
                    update(experiments).where(experiments.c.experiment_id == key).values(artifact_location=new)
                )
                connection.execute(update(runs).where(runs.c.experiment_id == key, here).values(artifact_uri=moved))
            self.notes.append(f"the artifacts of '{experiment.name}' are now looked for in {new}, no longer in {old}")

    def _describe_run(self, mlflow_id: str, note: str) -> None:
        """Set the description of a run, unless a person wrote or changed the one that it has."""
        if tags := described(note, self._client().get_run(mlflow_id).data.tags):
            self._log(mlflow_id, [], tags)

    def _list(self, experiment: str) -> None:
        """Read all runs of an experiment at once, for the look-ups that follow."""
        listing = Listing()
        token: str | None = ""
        while token is not None:
            page = self._client().search_runs([experiment], max_results=PAGE, page_token=token or None)
            for run in page:
                listing.ids.add(run.info.run_id)
                for tag in (RUN_ID, PLAN_ID):
                    if tag in run.data.tags:
                        listing.runs[tag, run.data.tags[tag]].append(run)
            token = page.token or None
        self._listed[experiment] = listing

    def _find(self, experiment: str, tag: str, value: str) -> Any:
        """The run whose `tag` is `value`, from the list of the experiment's runs if it is in one; None without any."""
        listing = self._listed.get(experiment)
        # Another process may have made it since the list was read.
        return (self._only(listing.runs[tag, value]) if listing else None) or self._search(experiment, tag, value)

    def _search(self, experiment: str, tag: str, value: str) -> Any:
        return self._only(self._client().search_runs([experiment], f"tags.`{tag}` = '{value}'"))

    def _copies(self, run_id: str, besides: str = "") -> Sequence[Any]:
        """The MLflow runs of a run: one in the experiment of each suite that uses it, but for the experiment `besides`.

        There is more than one because the UI nests a run only below a parent of the same experiment.
        """
        found = [experiment.experiment_id for experiment in self._client().search_experiments()]
        others = [experiment for experiment in found if experiment != besides]
        # Without an experiment MLflow would search its default one.
        return self._client().search_runs(others, f"tags.`{RUN_ID}` = '{run_id}'") if others else []

    def _name_suites(self, made: Any, run_id: str, suite: str) -> None:
        """Tag a run that was just made for `suite`, and its copies, with all suites that use it."""
        copies = self._copies(run_id, besides=made.info.experiment_id)
        suites = sorted({suite} | {copy.data.tags[SUITE] for copy in copies if SUITE in copy.data.tags})
        for run in (made, *copies) if copies else ():
            self._client().set_tag(run.info.run_id, SUITES, ", ".join(suites))

    def _only(self, runs: Sequence[Any]) -> Any:
        """One of several runs for the same thing; the others are deleted."""
        # A retried create request can leave two runs: keep the one with more tags, which holds the data.
        runs = sorted(runs, key=lambda run: (-len(run.data.tags), run.info.run_id))
        for duplicate in runs[1:]:
            self._client().delete_run(duplicate.info.run_id)
        return runs[0] if runs else None

    def _create(self, experiment: str, name: str, start: float, tags: dict[str, str]) -> Any:
        """A new run; later lookups use the first of `tags`. start: seconds since the epoch."""
        run = self._client().create_run(experiment, start_time=milliseconds(start), tags=tags, run_name=name)
        if experiment in self._listed:
            self._listed[experiment].ids.add(run.info.run_id)
        # A server may have been asked twice for it.
        return self._search(experiment, *next(iter(tags.items()))) if self.is_server else run

    def _has(self, mlflow_id: str, artifacts: str, name: str) -> bool:
        """Whether a run whose artifacts are at the address `artifacts` has the one called `name`, in no folder."""
        if artifacts.startswith("file:"):
            return (Path(local_file_uri_to_path(artifacts)) / name).exists()
        return name in {file.path for file in self._client().list_artifacts(mlflow_id)}

    def _artifact(self, mlflow_id: str, path: str) -> bytes | None:
        """The content of an artifact; None if it does not exist."""
        client, folder = self._client(), path.rpartition("/")[0]
        if path not in {file.path for file in client.list_artifacts(mlflow_id, folder or None)}:
            return None
        with tempfile.TemporaryDirectory() as target:
            return Path(client.download_artifacts(mlflow_id, path, target)).read_bytes()

    def _log(self, mlflow_id: str, points: Sequence[Point], last_tags: Mapping[str, Any]) -> None:
        """Log `points` in batches, and `last_tags` with the last batch."""
        if self._client() and self._engine and self._engine.dialect.name in rows.INSERT:
            rows.insert(self._engine, mlflow_id, points, {key: str(value) for key, value in last_tags.items()})
            return
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


def _prepare(connection: Any, _record: object) -> None:
    """Set up a connection to an SQLite file.

    WAL mode, which is stored in the file, lets the UI read while a process writes. A power cut can take the last
    transactions but tears none: the journals hold everything, and the cursor stands in the transaction of its points.
    """
    for statement in ("busy_timeout = 20000", "journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {statement}")


def described(note: str, there: Mapping[str, str]) -> dict[str, str]:
    """The tags that describe a run which has the tags `there`; none if a person wrote or changed the description."""
    is_ours = NOTE not in there or there.get(NOTED) == digest(there[NOTE])
    return {NOTE: note, NOTED: digest(note)} if is_ours else {}


def run_tags(tags: Mapping[str, Any]) -> list[RunTag]:
    """Tags as MLflow entities."""
    return [RunTag(key, str(value)) for key, value in tags.items()]


def reason(error: Exception) -> str:
    """The first informative line of an error, without credentials."""
    lines = str(error).strip().splitlines()
    # SQLAlchemy puts the circumstances of an error on the line before the error itself.
    informative = [line for line in lines if not line.startswith("(raised as a result of")]
    return redact(informative[0] if informative else type(error).__name__)
