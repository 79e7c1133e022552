"""Uploads the journals of runs to MLflow.

Each suite is an experiment, each plan a parent run, each run a child run. The journal is the source of truth:
ingesting is incremental, can be repeated, and uploads only steps that no later attempt can replace, so that no point
ever has to be withdrawn.
"""

import platform
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.entities import Param
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.records import SOURCES, State, Status
from mcpo_cli.redaction import redact
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.journal import FinalSteps, Journal, read_json
from mcpo_cli.settings import flat
from mcpo_cli.store import archive, contents, pages
from mcpo_cli.store.connection import (
    DOCTOR,
    NOTE,
    PARENT,
    PLAN_ID,
    REFUSALS,
    RUN_ID,
    STATUS,
    SUITE,
    SUITES,
    SYNC,
    Connection,
    described,
    reason,
    run_tags,
)
from mcpo_cli.store.points import eval_points, milliseconds, step_points

ORIGIN, DIGEST = "mcpo.home", "mcpo.digest"
"""Tags of a run: machine and home that it was sent from, and the digest of its journal when it ended."""
Progress = Callable[[str, int, str], AbstractContextManager[Callable[[], None]]]
"""Shows progress: from a title, a number of units and their name, a function to call after each."""
MONITOR_SECONDS = 5
CONTENT = 4
"""Version of the content stored for a finished run; raise it to upload finished runs again."""


@dataclass
class _Child:
    """The MLflow run of one of our runs, and how much of the journal it holds."""

    mlflow_id: str
    artifacts: str
    """The address of its artifacts."""
    parent: str
    """MLflow id of the parent run; empty if that is unknown."""
    steps: FinalSteps
    """The steps still to be ingested."""
    evaluated: int
    """Global step of the last ingested evaluation; -1 for none."""
    attempt: str
    """The attempt that its tags describe."""
    state: State
    settled: str
    """The ending (see `_update`) that is completely in the store; empty for none."""
    is_new: bool
    """Whether it was made a moment ago, so that nobody can have described it."""


@dataclass
class _Brought:
    """What came of bringing a run to the store."""

    parent: str
    """MLflow id of the parent run; empty if nothing is known of it."""
    state: State
    end: float = 0.0
    """When the run last changed, in seconds since the epoch."""
    points: int | None = None
    """Number of points sent; None if the run was left out."""


@contextmanager
def quiet(_title: str, _total: int, _unit: str) -> Iterator[Callable[[], None]]:
    """Show no progress."""
    yield lambda: None


class Store(Connection):
    """An MLflow store that tracks how much of each journal it holds."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._monitored = False
        self._machine = f"{platform.node()}:{self._home}"
        self.damaged: dict[str, str] = {}
        """Runs that the last call left out as damaged: run id -> reason."""
        self.refused: dict[str, str] = {}
        """Runs that the store would not take in the last call: run id -> reason."""
        self.elsewhere: dict[str, str] = {}
        """Runs that the store has from another home, with other results: run id -> where from."""

    def ingest(self, plan: Plan) -> int:
        """Upload what is new in the plan's journals; returns the number of points sent.

        Raises:
            StoreError: the store failed; the next call continues where this one stopped.
        """
        self._begin()
        with self._answering(fix=SYNC):
            return sum(self._ingest(plan, adopt=True).values())

    def sync(self, progress: Progress = quiet) -> dict[str, int]:
        """Upload every run of this home; returns the number of points sent for each run id.

        What was changed in the store behind our back is repaired: lost artifacts, tags, experiments.

        Raises:
            StoreError: the store failed.
        """
        self._begin()
        plans: dict[tuple[str, str], list[Cell]] = defaultdict(list)
        for run in catalog.runs(self._home):
            if self._journal(run.spec).attempts():
                suite, command = run.origin.get("suite", "train"), run.origin.get("command", "mcpo train")
                plans[suite, command].append(run.cell)
        points: dict[str, int] = {}
        total = sum(map(len, plans.values()))
        with self._answering(fix=DOCTOR), progress("sync", total, "runs") as advance:
            for suite in dict.fromkeys(suite for suite, _ in plans):
                self._list(self._experiment(suite))
            try:
                for (suite, command), cells in plans.items():
                    points |= self._ingest(Plan(suite, command, tuple(cells)), adopt=False, advance=advance)
            finally:
                self._listed.clear()
        return points

    def _begin(self) -> None:
        for found in (self.damaged, self.refused, self.elsewhere, self.notes):
            found.clear()

    def foreign_lines(self) -> list[str]:
        """`elsewhere` as a warning for each run."""
        return [
            f"warning: {run_id} is left as it is: the store has it from {origin}, with another journal; delete that "
            "run in mcpo ui, or choose another store with MLFLOW_TRACKING_URI"
            for run_id, origin in self.elsewhere.items()
        ]

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

    def _ingest(self, plan: Plan, *, adopt: bool, advance: Callable[[], None] = lambda: None) -> dict[str, int]:
        """Points sent for each run id. adopt: move runs that belong to another plan's parent to this plan's."""
        points = {}
        ends: dict[str, list[tuple[State, float]]] = defaultdict(list)
        for cell in plan.cells:
            # Others get their turn between two runs.
            with self._turn:
                found = self._bring(plan, cell, adopt=adopt)
            if found.parent:
                ends[found.parent].append((found.state, found.end))
            if found.points is not None:
                points[cell.spec.run_id] = found.points
            advance()
        with self._turn:
            for parent, cells in ends.items():
                states = {state for state, _ in cells}
                self._set_status(parent, self._plan_status(states), max(end for _, end in cells))
        return points

    def _bring(self, plan: Plan, cell: Cell, *, adopt: bool) -> _Brought:
        """Bring one run up to date. One that is damaged, or refused by the store, must not block the others."""
        run_id, journal = cell.spec.run_id, self._journal(cell.spec)
        if not journal.attempts():
            return _Brought(self._parent(plan), "planned")
        child = None
        try:
            child = self._child(plan, cell, journal)
            if run_id in self.elsewhere:
                return _Brought("", "done")
            parent = self._parent(plan) if adopt or not self._is_there(plan, child.parent) else child.parent
            if child.parent != parent:
                child.parent = parent
                self._client().set_tag(child.mlflow_id, PARENT, parent)
            points = self._update(child, cell, journal, repair=not adopt)
            return _Brought(child.parent, child.state, _status(journal.attempts()[-1])["updated"], points)
        except RunFailed as damage:
            self.damaged[run_id] = damage.message
        except MlflowException as error:
            if error.error_code not in REFUSALS:
                raise
            self.refused[run_id] = f"{run_id}: {reason(error)}"
            self._children.pop((self._experiment(plan.suite), run_id), None)
        return _Brought(child.parent if child else "", "failed")

    def _is_there(self, plan: Plan, parent: str) -> bool:
        """Whether the parent run of a run is in the store, as far as is known."""
        listing = self._listed.get(self._experiment(plan.suite))
        return bool(parent) and (listing is None or parent in listing.ids)

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
            run = self._find(experiment, PLAN_ID, plan.plan_id)
            if run is None:
                started = [
                    _status(first)["started"]
                    for cell in plan.cells
                    for first in self._journal(cell.spec).attempts()[:1]
                ]
                tags = {PLAN_ID: plan.plan_id, "mcpo.command": redact(plan.command)}
                run = self._create(experiment, name, min(started, default=time.time()), tags)
            self._present(run, name, {SUITE: plan.suite})
            self._explain(run, plan)
            self._parents[key] = run.info.run_id
        return self._parents[key]

    def _explain(self, run: Any, plan: Plan) -> None:
        """Save the view that compares the plan's arms, and write the parent's parameters and note if it has none."""
        if len(plan.cells) > 1:
            content = pages.view(plan, run.info.run_id, run.info.start_time)
            self._client().set_experiment_tag(run.info.experiment_id, f"{pages.VIEW}{plan.plan_id}", content)
        params = [Param(key, value) for key, value in pages.contrasts(plan).items() if key not in run.data.params]
        if params:
            self._client().log_batch(run.info.run_id, params=params)
        if NOTE not in run.data.tags:
            note = pages.plan_note(plan, redact(plan.command), run.info.experiment_id)
            self._describe_run(run.info.run_id, note)

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
            name = f"{series} {cell.spec.seeds}"
            shown = {pages.SERIES: series, SUITE: plan.suite}
            run = self._find(experiment, RUN_ID, run_id)
            if is_new := run is None:
                tags = {RUN_ID: run_id, PARENT: self._parent(plan), **shown, SUITES: plan.suite}
                run = self._create(experiment, name, _status(journal.attempts()[0])["started"], tags)
                self._name_suites(run, run_id, plan.suite)
            elif origin := self._other_origin(run, journal):
                self.elsewhere[run_id] = origin
            else:
                self._present(run, name, shown)
            settled = (tags := run.data.tags).get("mcpo.settled", "")
            is_outdated = bool(settled) and not settled.endswith(f" {CONTENT}")
            self._children[experiment, run_id] = _Child(
                mlflow_id=run.info.run_id,
                artifacts=run.info.artifact_uri,
                parent=tags.get(PARENT, ""),
                # Points that are sent again are dropped, so a cursor that cannot be read costs only time.
                steps=FinalSteps(journal, after=_number(tags.get("mcpo.step"), 0)),
                evaluated=-1 if is_outdated else _number(tags.get("mcpo.eval_step"), -1),
                attempt=tags.get("attempt", ""),
                state=tags.get("state", "planned"),
                settled=settled,
                is_new=is_new,
            )
        return self._children[experiment, run_id]

    def _other_origin(self, run: Any, journal: Journal) -> str | None:
        """The home from which the store has this run with another journal; None if it is this one's.

        A home that moved, or that pulled the run, has the same first attempt.
        """
        origin, tags = run.data.tags.get(ORIGIN, self._machine), run.data.tags
        started = milliseconds(_status(journal.attempts()[0])["started"])
        if origin == self._machine or run.info.start_time == started or tags.get(DIGEST) == journal.digest():
            return None
        return str(origin)

    def _series_of(self, plan: Plan) -> dict[str, str]:
        if plan.plan_id not in self._series:
            self._series[plan.plan_id] = pages.series(plan)
        return self._series[plan.plan_id]

    def _update(self, child: _Child, cell: Cell, journal: Journal, *, repair: bool) -> int:
        """Bring one run up to date; returns the number of points sent. repair: send lost artifacts again."""
        attempt = journal.attempts()[-1]
        updated = _status(attempt)["updated"]
        ending = f"{attempt.name} {updated} {CONTENT}"
        if child.settled == ending:
            if repair and not self._has(child.mlflow_id, child.artifacts, archive.NAME):
                self._log(child.mlflow_id, [], contents.send_files(journal, child.artifacts, self.uri))
            return 0
        is_new, child.is_new = child.is_new, False
        # Read the state before the rows: if it says that the run has ended, all rows exist.
        child.state = attempts.state(journal.run_dir, cell.spec)
        has_ended = child.state != "running"
        if has_ended or child.attempt != attempt.name:
            self._describe(child, cell, attempt)
        points = self._send(child, journal)
        self._set_status(child.mlflow_id, STATUS[child.state], updated)
        if has_ended:
            tags = contents.send_files(journal, child.artifacts, self.uri)
            tags |= {"state": child.state, "mcpo.settled": ending, DIGEST: journal.digest()}
            there = {} if is_new else self._client().get_run(child.mlflow_id).data.tags
            self._log(child.mlflow_id, [], tags | described(contents.note(cell, journal), there))
            child.settled = ending
        return points

    def _send(self, child: _Child, journal: Journal) -> int:
        """Send the points of all newly final steps and evaluations, and move the cursor; returns their number."""
        rows = list(child.steps.read())
        points = [point for row in rows for point in step_points(row)]
        final = journal.final_step()
        files = {step: path for step, path in journal.files("eval").items() if child.evaluated < step <= final}
        if files:
            started = _status(journal.attempts()[0])["started"]
            times = {row["step"]: row["time"] for row in rows}
            if not files.keys() <= times.keys() | {0}:
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
        spec, tags = cell.spec, contents.tags(cell, attempt) | {ORIGIN: self._machine}
        params = [Param(key, str(value)) for key, value in flat(spec.identity()).items() if value != ""]
        for i in range(0, len(params), 100):
            self._client().log_batch(child.mlflow_id, params=params[i : i + 100], tags=[] if i else run_tags(tags))
        self._client().log_inputs(child.mlflow_id, list(contents.inputs(spec, attempt.parent / SOURCES)))
        child.attempt = attempt.name


def _number(tag: str | None, default: int) -> int:
    """The value of a tag that should be an integer; `default` for one that somebody removed or changed."""
    return int(tag) if tag and re.fullmatch(r"-?\d{1,9}", tag) else default


def _status(attempt: Path) -> Status:
    status: Status = read_json(attempt / "status.json")
    return status
