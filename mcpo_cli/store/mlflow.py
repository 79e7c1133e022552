"""Uploads the journals of runs to MLflow.

Each suite is an experiment, each plan a parent run, each run a child run. The journal is the source of truth:
ingesting is incremental, can be repeated, and uploads only steps that no later attempt can replace, so that no point
ever has to be withdrawn.
"""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, Param
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.config.schema import RunSpec, digest
from mcpo_cli.errors import RunFailed
from mcpo_cli.records import SOURCES, State, Status
from mcpo_cli.redaction import redact
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.journal import FinalSteps, Journal, read_json
from mcpo_cli.store import archive, pages
from mcpo_cli.store.connection import NOTE, STATUS, Connection, run_tags
from mcpo_cli.store.points import eval_points, flat, step_points

MONITOR_SECONDS = 5
CONTENT = 2
"""Version of the content stored for a finished run; raise it to upload finished runs again."""


@dataclass
class _Child:
    """The MLflow run of one of our runs, and how much of the journal it holds."""

    mlflow_id: str
    parent: str
    """MLflow id of the parent run."""
    steps: FinalSteps
    """The steps still to be ingested."""
    evaluated: int
    """Global step of the last ingested evaluation; -1 for none."""
    attempt: str
    """The attempt that its tags describe."""
    state: State
    settled: str
    """The ending (see `_update`) that is completely in the store; empty for none."""


class Store(Connection):
    """An MLflow store that tracks how much of each journal it holds."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._monitored = False
        self.damaged: dict[str, str] = {}
        """Runs that the last call left out as damaged: run id -> reason."""

    def ingest(self, plan: Plan) -> int:
        """Upload what is new in the plan's journals; returns the number of points sent.

        Raises:
            StoreError: the store failed; the next call continues where this one stopped.
        """
        self.damaged.clear()
        with self._writing():
            return sum(self._ingest(plan, adopt=True).values())

    def sync(self) -> dict[str, int]:
        """Upload every run of this home; returns the number of points sent for each run id.

        Raises:
            StoreError: the store failed.
        """
        self.damaged.clear()
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
        """Log the machine's load to the plan's parent run, whose status is running until the next `ingest` afterwards.

        Errors of the monitor are ignored: they must not stop the runs.
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

    def link(self, plan: Plan) -> str:
        """The address of the saved view that compares the plan's arms; this object must have ingested the plan.

        Without a server the address is that of `mcpo ui`.
        """
        server = self.shown.rstrip("/") if self.is_server else pages.UI
        return f"{server}/{pages.fragment(self._experiments[plan.suite], plan.plan_id)}"

    def _forget(self) -> None:
        super()._forget()
        self._parents: dict[str, str] = {}
        self._series: dict[str, dict[str, str]] = {}
        self._children: dict[tuple[str, str], _Child] = {}

    def _journal(self, spec: RunSpec) -> Journal:
        return Journal(self._home / "runs" / spec.run_id)

    def _ingest(self, plan: Plan, *, adopt: bool) -> dict[str, int]:
        """Points sent for each run id. adopt: move runs that belong to another plan's parent to this plan's."""
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
            try:
                points[cell.spec.run_id] = self._update(child, cell, journal)
                ends[child.parent].append((child.state, _status(journal.attempts()[-1])["updated"]))
            except RunFailed as damage:
                # One damaged run must not block the others.
                self.damaged[cell.spec.run_id] = damage.message
                ends[child.parent].append(("failed", 0.0))
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

    def _parent(self, plan: Plan) -> str:
        key = f"{plan.suite} {plan.plan_id}"
        if key not in self._parents:
            experiment, name = self._experiment(plan.suite), pages.plan_name(plan)
            run = self._find(experiment, "mcpo.plan_id", plan.plan_id)
            if run is None:
                started = [
                    _status(first)["started"]
                    for cell in plan.cells
                    for first in self._journal(cell.spec).attempts()[:1]
                ]
                tags = {"mcpo.plan_id": plan.plan_id, "mcpo.command": redact(plan.command)}
                run = self._create(experiment, name, min(started, default=time.time()), tags)
            self._present(run, name, {"suite": plan.suite})
            self._explain(run, plan)
            self._parents[key] = run.info.run_id
        return self._parents[key]

    def _explain(self, run: Any, plan: Plan) -> None:
        """Save the view that compares the plan's arms, and write the parent's note if it has none."""
        experiment, view = run.info.experiment_id, ""
        if len(plan.cells) > 1:
            view = pages.fragment(experiment, plan.plan_id)
            content = pages.view(plan, run.info.run_id, run.info.start_time)
            self._client().set_experiment_tag(experiment, f"{pages.VIEW}{plan.plan_id}", content)
        if NOTE not in run.data.tags:
            self._client().set_tag(run.info.run_id, NOTE, pages.plan_note(plan, redact(plan.command), view))

    def _present(self, run: Any, name: str, tags: Mapping[str, str]) -> None:
        """Set the name and tags that the UI shows, if they differ."""
        if run.info.run_name != name:
            self._client().update_run(run.info.run_id, name=name)
        if not tags.items() <= run.data.tags.items():
            self._client().log_batch(run.info.run_id, tags=run_tags(tags))

    def _child(self, plan: Plan, cell: Cell, journal: Journal) -> _Child:
        experiment, run_id = self._experiment(plan.suite), cell.spec.run_id
        if (experiment, run_id) not in self._children:
            series = self._series_of(plan)[run_id]
            name = f"{series} seed {cell.spec.seed}"
            run = self._find(experiment, "mcpo.run_id", run_id)
            if run is None:
                tags = {"mcpo.run_id": run_id, "mlflow.parentRunId": self._parent(plan)}
                run = self._create(experiment, name, _status(journal.attempts()[0])["started"], tags)
            self._present(run, name, {pages.SERIES: series, "suite": plan.suite})
            tags = run.data.tags
            self._children[experiment, run_id] = _Child(
                mlflow_id=run.info.run_id,
                parent=tags["mlflow.parentRunId"],
                steps=FinalSteps(journal, after=int(tags.get("mcpo.step", 0))),
                evaluated=int(tags.get("mcpo.eval_step", -1)),
                attempt=tags.get("attempt", ""),
                state=tags.get("state", "planned"),
                settled=tags.get("mcpo.settled", ""),
            )
        return self._children[experiment, run_id]

    def _series_of(self, plan: Plan) -> dict[str, str]:
        if plan.plan_id not in self._series:
            self._series[plan.plan_id] = pages.series(plan)
        return self._series[plan.plan_id]

    def _update(self, child: _Child, cell: Cell, journal: Journal) -> int:
        """Bring one run up to date; returns the number of points sent."""
        attempt = journal.attempts()[-1]
        updated = _status(attempt)["updated"]
        ending = f"{attempt.name} {updated} {CONTENT}"
        if child.settled == ending:
            return 0
        # Read the state before the rows: if it says that the run has ended, all rows exist.
        child.state = attempts.state(journal.run_dir, cell.spec)
        if child.attempt != attempt.name:
            self._describe(child, cell, attempt)
        points = self._send(child, journal)
        self._set_status(child.mlflow_id, STATUS[child.state], updated)
        if child.state != "running":
            self._describe(child, cell, attempt)
            self._log_artifacts(child, journal)
            self._log_tags(child, {"state": child.state, "mcpo.settled": ending})
            child.settled = ending
        return points

    def _send(self, child: _Child, journal: Journal) -> int:
        """Send the points of all newly final steps and evaluations, and move the cursor; returns their number."""
        points = [point for row in child.steps.read() for point in step_points(row)]
        final = journal.final_step()
        files = {step: path for step, path in journal.files("eval").items() if child.evaluated < step <= final}
        if files:
            started = _status(journal.attempts()[0])["started"]
            times = {row["step"]: row["time"] for row in journal.steps()}
            for step, path in files.items():
                points += eval_points(step, times.get(step, started), journal.read(path))
            child.evaluated = max(files)
        cursor = {"mcpo.step": str(child.steps.last), "mcpo.eval_step": str(child.evaluated)}
        if points:
            # The last batch carries the cursor: after a crash points are sent again, and MLflow drops equal ones.
            self._log(child.mlflow_id, points, cursor)
        return len(points)

    def _describe(self, child: _Child, cell: Cell, attempt: Path) -> None:
        spec = cell.spec
        tags = {
            "arm": cell.arm,
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
        self._client().log_inputs(child.mlflow_id, list(_inputs(spec, attempt.parent / SOURCES)))
        child.attempt = attempt.name

    def _log_tags(self, child: _Child, tags: Mapping[str, Any]) -> None:
        self._client().log_batch(child.mlflow_id, tags=run_tags(tags))

    def _log_artifacts(self, child: _Child, journal: Journal) -> None:
        for name in ("spec.json", "provenance.json"):
            path = journal.attempts()[-1] / name
            if path.exists():
                self._client().log_text(child.mlflow_id, archive.document(path), name)
        for path in journal.files("eval").values():
            self._client().log_artifact(child.mlflow_id, str(path), "eval")
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / archive.NAME
            packed.write_bytes(archive.pack(journal.run_dir))
            self._client().log_artifact(child.mlflow_id, str(packed))


def _status(attempt: Path) -> Status:
    status: Status = read_json(attempt / "status.json")
    return status


def _inputs(spec: RunSpec, sources: Path) -> Iterator[DatasetInput]:
    """The run's data: the published data sets it used, or its generated task."""
    if not spec.task.published:
        task = json.dumps(spec.identity()["task"])
        yield DatasetInput(Dataset(spec.task.name, digest(spec.identity()["task"]), "generated", task))
    elif sources.exists():
        for name, data in read_json(sources).items():
            yield DatasetInput(Dataset(name, data["digest"], "data set", data["source"]))
