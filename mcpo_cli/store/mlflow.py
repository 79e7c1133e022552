"""Brings journals to MLflow; the only importer of mlflow.

One experiment a suite, one parent run a plan, one child run a run of ours. The journal stays the truth:
ingesting is incremental, can be repeated at will, and takes only steps that no later attempt can replace,
so that each point is written once and never has to be taken back.
"""

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from mcpo_cli.config.schema import RunSpec, digest
from mcpo_cli.errors import ConfigError, StoreError
from mcpo_cli.plan import Cell, Plan
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.home import home
from mcpo_cli.runs.journal import FinalSteps, Journal, read_json, read_lines
from mcpo_cli.runs.provenance import redact
from mcpo_cli.store.points import eval_points, flat, milliseconds, step_points
from mcpo_cli.store.records import State, Status

# Read by MLflow and its drivers; what the user has set stays.
os.environ.update(
    {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # it prints tracebacks of what it raises anyway
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # of 7, which wait for minutes
        "PGCONNECT_TIMEOUT": "10",
    }
    | dict(os.environ)
)

from mlflow.entities import Dataset, DatasetInput, Metric, Param, RunTag
from mlflow.store.db.db_types import DATABASE_ENGINES
from mlflow.store.db.utils import create_sqlalchemy_engine
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.tracking import MlflowClient

OFFLINE = "offline"
STATUS = {"running": "RUNNING", "done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
"""MLflow's words for the states of a run that has begun."""
BATCH = 900
"""Metrics a call: MLflow takes 1000 entities, the tags of the cursor among them."""
LOCK_SECONDS = 60
MONITOR_SECONDS = 5


def resolve(setting: str) -> str | None:
    """The tracking URI that `compute.tracking_uri` stands for; None where it says offline.

    Raises:
        ConfigError: MCPO_HOME cannot be written.
    """
    uri = setting or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"
    return None if uri == OFFLINE else uri


@dataclass
class _Child:
    """What is known of one run's MLflow run.

    steps: what is still to be ingested. evaluated: last evaluation ingested, -1 for none.
    attempt: whose tags it bears. settled: the ending that is in the store with all that belongs to it.
    """

    mlflow_id: str
    parent: str
    steps: FinalSteps
    evaluated: int
    attempt: str
    state: State
    settled: str


class Store:
    """An MLflow store and what of the journals is in it already.

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
        self._monitored = False
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

    def ingest(self, plan: Plan) -> int:
        """Bring what is new in the plan's journals to the store: the number of points sent.

        Raises:
            StoreError: the store failed; the next call goes on where this one stopped.
        """
        with self._writing():
            return sum(self._ingest(plan, adopt=True).values())

    def sync(self) -> dict[str, int]:
        """Bring every run of this home to the store: points sent by run id.

        Raises:
            StoreError: the store failed.
        """
        plans: dict[tuple[str, str], list[Cell]] = defaultdict(list)
        for run in catalog.runs(self._home):
            if self._journal(run.spec).attempts():
                suite, command = run.origin.get("suite", "train"), run.origin.get("command", "mcpo train")
                plans[suite, command].append(Cell(run.origin.get("arm", run.spec.method.label), run.spec))
        points: dict[str, int] = {}
        with self._writing():
            for (suite, command), cells in plans.items():
                points |= self._ingest(Plan(suite, command, tuple(cells)), adopt=False)
        return points

    @contextmanager
    def monitor(self, plan: Plan) -> Iterator[None]:
        """Log the machine's load to the plan's parent run, which counts as running until the next `ingest` after.

        Nothing that goes wrong here reaches the caller: the runs matter more than their monitor.
        """
        self._monitored = True
        monitor = None
        with suppress(Exception), self._writing():
            parent = self._parent(plan)
            self._set_status(parent, STATUS["running"], 0.0)
            monitor = SystemMetricsMonitor(parent, MONITOR_SECONDS, resume_logging=True, tracking_uri=self.uri)
            monitor.start()
        try:
            yield
        finally:
            self._monitored = False
            if monitor:
                with suppress(Exception):
                    monitor.finish()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._turn:
                yield
        except Exception as error:
            # What was read but not sent must be read again, and what was cached may be gone.
            self._forget()
            message = f"the MLflow store {self.shown} failed: {_reason(error)}"
            raise StoreError(message, fix="mcpo runs sync") from error

    def _forget(self) -> None:
        self._experiments: dict[str, str] = {}
        self._parents: dict[str, str] = {}
        self._children: dict[tuple[str, str], _Child] = {}
        self._statuses: dict[str, str] = {}

    def _journal(self, spec: RunSpec) -> Journal:
        return Journal(self._home / "runs" / spec.run_id)

    def _client(self) -> MlflowClient:
        if self._mlflow is None:
            with self._setup:
                self._probe()
                client = MlflowClient(self.uri)
                client.search_experiments(max_results=1)  # the first call makes the schema of a new database
                self._mlflow = client
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

    def _ingest(self, plan: Plan, *, adopt: bool) -> dict[str, int]:
        """adopt: make children of another plan's parent, with runs in common, this plan's."""
        points = {}
        ends: dict[str, list[tuple[State, float]]] = defaultdict(list)
        for cell in plan.cells:
            journal = self._journal(cell.spec)
            if not journal.attempts():
                ends[self._parent(plan)].append(("planned", 0.0))
                continue
            child = self._child(plan, cell, journal)
            if adopt and child.parent != self._parent(plan):
                child.parent = self._parent(plan)
                self._client().set_tag(child.mlflow_id, "mlflow.parentRunId", child.parent)
            points[cell.spec.run_id] = self._update(child, cell, journal)
            ends[child.parent].append((child.state, _status(journal.attempts()[-1])["updated"]))
        for parent, cells in ends.items():
            states = {state for state, _ in cells}
            self._set_status(parent, self._plan_status(states), max(end for _, end in cells))
        return points

    def _plan_status(self, states: set[State]) -> str:
        if self._monitored or "running" in states:
            return STATUS["running"]
        if "failed" in states:
            return STATUS["failed"]
        return STATUS["done" if states == {"done"} else "interrupted"]

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
            found = self._client().get_experiment_by_name(suite)
            # A server knows where its artifacts go; a database alone would put them into the current folder.
            location = None if self.is_server else (self._home / "mlartifacts" / suite).as_uri()
            self._experiments[suite] = (
                found.experiment_id if found else self._client().create_experiment(suite, artifact_location=location)
            )
        return self._experiments[suite]

    def _find(self, experiment: str, tag: str, value: str) -> Any:
        found = self._client().search_runs([experiment], f"tags.`{tag}` = '{value}'", max_results=1)
        return found[0] if found else None

    def _parent(self, plan: Plan) -> str:
        key = f"{plan.suite} {plan.plan_id}"
        if key not in self._parents:
            experiment = self._experiment(plan.suite)
            run = self._find(experiment, "mcpo.plan_id", plan.plan_id)
            if run is None:
                started = [
                    _status(first)["started"]
                    for cell in plan.cells
                    for first in self._journal(cell.spec).attempts()[:1]
                ]
                tags = {"mcpo.plan_id": plan.plan_id, "mcpo.command": redact(plan.command)}
                start = milliseconds(min(started, default=time.time()))
                run = self._client().create_run(experiment, start_time=start, tags=tags, run_name=key)
            self._parents[key] = run.info.run_id
        return self._parents[key]

    def _child(self, plan: Plan, cell: Cell, journal: Journal) -> _Child:
        experiment, run_id = self._experiment(plan.suite), cell.spec.run_id
        if (experiment, run_id) not in self._children:
            run = self._find(experiment, "mcpo.run_id", run_id)
            if run is None:
                start = milliseconds(_status(journal.attempts()[0])["started"])
                tags = {"mcpo.run_id": run_id, "mlflow.parentRunId": self._parent(plan)}
                run = self._client().create_run(experiment, start_time=start, tags=tags, run_name=run_id)
            tags = run.data.tags
            self._children[experiment, run_id] = _Child(
                mlflow_id=run.info.run_id,
                parent=tags["mlflow.parentRunId"],
                steps=FinalSteps(journal, after=int(tags.get("mcpo.step", 0))),
                evaluated=int(tags.get("mcpo.eval_step", -1)),
                attempt=tags.get("attempt", ""),
                state=tags.get("mcpo.state", "planned"),
                settled=tags.get("mcpo.settled", ""),
            )
        return self._children[experiment, run_id]

    def _update(self, child: _Child, cell: Cell, journal: Journal) -> int:
        """Bring one run up to date: the number of points sent."""
        attempt = journal.attempts()[-1]
        updated = _status(attempt)["updated"]
        ending = f"{attempt.name} {updated}"
        if child.settled == ending:
            return 0
        # The state before the rows: when it says that the run has ended, all rows are there.
        child.state = attempts.state(journal.run_dir, cell.spec)
        if child.attempt != attempt.name:
            self._describe(child, cell, attempt)
        points = self._send(child, journal)
        self._set_status(child.mlflow_id, STATUS[child.state], updated)
        if child.state != "running":
            self._describe(child, cell, attempt)
            self._log_artifacts(child, journal)
            self._log_tags(child, {"mcpo.state": child.state, "mcpo.settled": ending})
            child.settled = ending
        return points

    def _send(self, child: _Child, journal: Journal) -> int:
        """Send the points of all steps and evaluations that became final, and move the cursor."""
        points = [point for row in child.steps.read() for point in step_points(row)]
        final = journal.final_step()
        files = {step: path for step, path in journal.files("eval").items() if child.evaluated < step <= final}
        if files:
            started = _status(journal.attempts()[0])["started"]
            times = {row["step"]: row["time"] for row in journal.steps()}
            for step, path in files.items():
                points += eval_points(step, times.get(step, started), read_lines(path))
            child.evaluated = max(files)
        cursor = {"mcpo.step": str(child.steps.last), "mcpo.eval_step": str(child.evaluated)}
        for i in range(0, len(points), BATCH):
            metrics = [Metric(*point) for point in points[i : i + BATCH]]
            # With the last batch: after a crash the points come again, and the store takes equal ones as one.
            tags = cursor if i + BATCH >= len(points) else {}
            self._client().log_batch(child.mlflow_id, metrics=metrics, tags=_tags(tags))
        return len(points)

    def _describe(self, child: _Child, cell: Cell, attempt: Path) -> None:
        spec = cell.spec
        tags = {
            "mcpo.arm": cell.arm,
            "method": spec.method.name,
            "model": spec.model.name,
            "seed": spec.seed,
            "scale": spec.scale,
            "regime": spec.regime,
            "attempt": attempt.name,
        }
        provenance = attempt / "provenance.json"
        if provenance.exists():
            code = read_json(provenance)
            tags |= {key: code[key] for key in ("commit", "dirty") if code.get(key) is not None}
        self._log_tags(child, tags)
        params = [Param(key, str(value)) for key, value in flat(spec.identity()).items()]
        for i in range(0, len(params), 100):
            self._client().log_batch(child.mlflow_id, params=params[i : i + 100])
        task = spec.identity()["task"]
        data = Dataset(name=spec.task.name, digest=digest(task), source_type="generated", source=json.dumps(task))
        self._client().log_inputs(child.mlflow_id, [DatasetInput(data)])
        child.attempt = attempt.name

    def _log_tags(self, child: _Child, tags: Mapping[str, Any]) -> None:
        self._client().log_batch(child.mlflow_id, tags=_tags(tags))

    def _log_artifacts(self, child: _Child, journal: Journal) -> None:
        for name in ("spec.json", "provenance.json"):
            path = journal.attempts()[-1] / name
            if path.exists():
                self._client().log_text(child.mlflow_id, redact(path.read_text(encoding="utf-8")), name)
        for path in journal.files("eval").values():
            self._client().log_artifact(child.mlflow_id, str(path), "eval")


def _tags(tags: Mapping[str, Any]) -> list[RunTag]:
    return [RunTag(key, str(value)) for key, value in tags.items()]


def _status(attempt: Path) -> Status:
    status: Status = read_json(attempt / "status.json")
    return status


def _reason(error: Exception) -> str:
    """The first line of an error, without credentials."""
    return redact(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
