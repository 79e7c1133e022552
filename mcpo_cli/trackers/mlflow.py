"""Uploads the journals of runs to MLflow.

Each suite is an experiment, each plan a parent run, each run a child run. The journal is the source of truth:
ingesting is incremental, can be repeated, and uploads only steps that no later attempt can replace, so that no point
ever has to be withdrawn. Changes that people make in the store are kept.
"""

import platform
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException

from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.errors import RunFailed
from mcpo_cli.records import State, Status
from mcpo_cli.redaction import redact
from mcpo_cli.runs import attempts, catalog
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.trackers import contents, descriptions, views
from mcpo_cli.trackers.connection import SOURCE, STATUS, SUITE, Connection, Point, milliseconds, reason
from mcpo_cli.trackers.rows import Row, Rows

PARENT = "mlflow.parentRunId"
RUN_ID, PLAN_ID = "mcpo.run_id", "mcpo.plan_id"
"""The tags that identify MLflow runs: the tag of our runs, and the tag of the plans above them."""
STEP, EVALUATED = "mlflow.mcpo.step", "mlflow.mcpo.eval_step"
"""Tags of a run: the last step and evaluation in the store. MLflow's UI hides tags that begin with `mlflow.`."""
ORIGIN, SETTLED = "mlflow.mcpo.home", "mlflow.mcpo.settled"
"""Tags of a run: machine and home that it was sent from, and the attempt whose end is completely in the store."""
REFUSALS = {
    *("BAD_REQUEST", "INVALID_PARAMETER_VALUE", "INVALID_STATE"),
    *("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"),
}
"""MLflow's error codes that concern one run, not the store."""
DOCTOR = "mcpo doctor, which checks the store; the same command then sends what is missing"
Progress = Callable[[str, int, str], AbstractContextManager[Callable[[], None]]]
"""Shows progress: takes a title, a number of units and their name; gives a function to call after each unit."""


@dataclass
class _Child:
    """The MLflow run of one of our runs, and how much of the journal it holds."""

    mlflow_id: str
    parent: str
    """MLflow id of the parent run."""
    rows: Rows
    settled: str
    """The ending (see `_ending`) that is completely in the store; empty for none."""
    state: State
    attempt: str = ""
    """The attempt that its tags and parameters describe."""


@contextmanager
def quiet(_title: str, _total: int, _unit: str) -> Iterator[Callable[[], None]]:
    """Show no progress."""
    yield lambda: None


class Store(Connection):
    """An MLflow store that tracks how much of each journal it holds."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._machine = f"{platform.node()}:{self.home}"
        self.left: dict[str, str] = {}
        """Runs that the last call did not upload: run id -> reason."""

    def ingest(self, plan: Plan, *, is_running: bool = False) -> int:
        """Upload the new content of the plan's journals; returns the number of points sent.

        is_running: the plan is running, whatever the states of its runs.

        Raises:
            StoreError: the store failed; the next call continues where this one stopped.
        """
        self.left.clear()
        with self.answering():
            return sum(self._ingest(plan, adopt=True, is_running=is_running).values())

    def sync(self, progress: Progress = quiet) -> dict[str, int]:
        """Upload the new content of the journals of this home; returns the number of points sent for each run id.

        Raises:
            StoreError: the store failed.
        """
        self.left.clear()
        plans: dict[tuple[str, str], dict[catalog.Run, str]] = defaultdict(dict)
        for run in catalog.runs(self.home):
            if (journal := Journal(run.folder)).attempts():
                plan = run.origin.get("suite", "train"), run.origin.get("command", "mcpo train")
                plans[plan][run] = _ending(journal)
        sent: dict[str, int] = {}
        with self.answering(DOCTOR), progress("sync", sum(map(len, plans.values())), "runs") as advance:
            settled = self._settled()
            for (suite, command), endings in plans.items():
                if {(suite, run.folder.name, ending) for run, ending in endings.items()} <= settled:
                    sent |= {run.folder.name: 0 for run in endings}
                    for _ in endings:
                        advance()
                else:
                    runs = tuple(run.planned for run in endings)
                    sent |= self._ingest(Plan(suite, command, runs), adopt=False, advance=advance)
        return sent

    def _settled(self) -> set[tuple[str, str, str]]:
        """The runs of this home that are completely in the store, below a parent that has ended.

        Each with its suite, its id and its ending; in a few requests, because a request for each run takes minutes for
        thousands of runs.
        """
        going_on = f"tags.`{PLAN_ID}` != '' and attributes.status = '{STATUS['running']}'"
        running = {run.info.run_id for run in self.search(going_on)}
        return {
            (tags[SUITE], tags[RUN_ID], tags[SETTLED])
            for run in self.search(f"tags.`{ORIGIN}` = '{self._machine}'")
            if {SUITE, RUN_ID, SETTLED, PARENT} <= (tags := run.data.tags).keys() and tags[PARENT] not in running
        }

    def parent(self, plan: Plan) -> str:
        """The MLflow id of the plan's parent run, which is made if it is missing."""
        key = f"{plan.suite} {plan.plan_id}"
        if key not in self._parents:
            experiment, name = self.experiment(plan.suite), descriptions.plan_name(plan)
            with self.turn:
                run = self.find(experiment, PLAN_ID, plan.plan_id)
                if run is None:
                    tags = {SUITE: plan.suite, SOURCE: redact(plan.command)}
                    run = self.create(experiment, name, (PLAN_ID, plan.plan_id), self._start(plan), tags)
                    charts = views.address(experiment, run.info.run_id)
                    self.describe(run.info.run_id, descriptions.plan_note(plan, charts))
            self.show(experiment, views.charts(run.info.run_id, list(descriptions.series(plan).values())))
            differing = descriptions.contrasts(plan)
            if differing.keys() - run.data.params.keys():
                self.log(run.info.run_id, params=differing)
            self._parents[key] = run.info.run_id
        return self._parents[key]

    def link(self, plan: Plan) -> str:
        """Where the charts of the plan's runs are: an address of a server, or the command that opens them."""
        if not self.is_server:
            return "mcpo ui"
        return f"{self.shown.rstrip('/')}/{views.address(self.experiment(plan.suite), self.parent(plan))}"

    def newest(self) -> str:
        """The address of the table with the newest plan, relative to the UI's; without a plan, of all experiments."""
        parent = next(self.search(f"tags.`{PLAN_ID}` != ''", order="attributes.start_time DESC", page=1), None)
        return views.address(parent.info.experiment_id) if parent else "#/experiments"

    def _forget(self) -> None:
        super()._forget()
        self._parents: dict[str, str] = {}
        self._named: dict[str, dict[str, str]] = {}
        self._children: dict[tuple[str, str], _Child] = {}

    def _series(self, plan: Plan) -> dict[str, str]:
        """See `descriptions.series`."""
        if plan.plan_id not in self._named:
            self._named[plan.plan_id] = descriptions.series(plan)
        return self._named[plan.plan_id]

    def _journal(self, run: PlannedRun) -> Journal:
        return Journal(self.home / "runs" / run.spec.run_id)

    def _start(self, plan: Plan) -> float:
        """Start time of the first run of a plan; the current time before that."""
        firsts = [attempt for run in plan.runs for attempt in self._journal(run).attempts()[:1]]
        return min((_status(attempt)["started"] for attempt in firsts), default=time.time())

    def _ingest(
        self, plan: Plan, *, adopt: bool, is_running: bool = False, advance: Callable[[], None] = lambda: None
    ) -> dict[str, int]:
        """Points sent for each run id. adopt: move runs that belong to another plan's parent to this plan's.

        A run that is damaged, that another home has sent, or that MLflow refuses is in `left` and blocks no other.
        """
        sent: dict[str, int] = {}
        ends: dict[str, list[tuple[State, float]]] = defaultdict(list)
        for run in plan.runs:
            run_id, journal = run.spec.run_id, self._journal(run)
            if not journal.attempts():
                ends[self.parent(plan)].append(("planned", 0.0))
                continue
            try:
                # Other processes get their turn between two runs.
                with self.turn:
                    child = self._child(plan, run, journal, adopt=adopt)
                    sent[run_id] = self._update(child, run, journal)
                ends[child.parent].append((child.state, _status(journal.attempts()[-1])["updated"]))
            except RunFailed as error:
                self.left[run_id] = error.message
            except MlflowException as error:
                if error.error_code not in REFUSALS:
                    raise
                self._children.pop((plan.suite, run_id), None)
                self.left[run_id] = f"{run_id}: the store refuses it: {reason(error)}"
            if run_id in self.left and adopt:
                ends[self.parent(plan)].append(("failed", time.time()))
            advance()
        for parent, runs in ends.items():
            status = STATUS["running"] if is_running else _plan_status({state for state, _ in runs})
            self.set_status(parent, status, max(end for _, end in runs))
        return sent

    def _child(self, plan: Plan, planned: PlannedRun, journal: Journal, *, adopt: bool) -> _Child:
        key = plan.suite, planned.spec.run_id
        if key not in self._children:
            run = self._found_or_made(plan, planned, journal)
            tags = run.data.tags
            # MLflow drops points that are sent again, so an unreadable cursor costs only time.
            rows = Rows(journal, _number(tags.get(STEP), 0), _number(tags.get(EVALUATED), -1))
            settled, state = tags.get(SETTLED, ""), tags.get("state", "planned")
            self._children[key] = _Child(run.info.run_id, tags.get(PARENT, ""), rows, settled, state)
        child = self._children[key]
        if (adopt or not child.parent) and child.parent != self.parent(plan):
            child.parent = self.parent(plan)
            series = self._series(plan)[planned.spec.run_id]
            self.log(child.mlflow_id, tags={PARENT: child.parent, descriptions.SERIES: series})
            self.client().update_run(child.mlflow_id, name=f"{series} {planned.spec.seeds}")
        return child

    def _found_or_made(self, plan: Plan, planned: PlannedRun, journal: Journal) -> Any:
        """The MLflow run of a run; its start, the first attempt's, distinguishes runs of one id.

        Raises:
            RunFailed: the store has the run from another home, where it was trained anew.
        """
        experiment, run_id = self.experiment(plan.suite), planned.spec.run_id
        start = _status(journal.attempts()[0])["started"]
        run = self.find(experiment, RUN_ID, run_id)
        if run is not None and run.info.start_time != milliseconds(start):
            origin = run.data.tags.get(ORIGIN, "another home")
            if origin != self._machine:
                raise RunFailed(f"{run_id}: the store has it from {origin}, not from {self._machine}")
            # The run's folder was removed, and the run was trained again.
            self.client().delete_run(run.info.run_id)
            run = None
        if run is None:
            series = self._series(plan)[run_id]
            tags = {PARENT: self.parent(plan), SUITE: plan.suite, descriptions.SERIES: series, ORIGIN: self._machine}
            tags[SOURCE] = redact(plan.command)
            run = self.create(experiment, f"{series} {planned.spec.seeds}", (RUN_ID, run_id), start, tags)
        return run

    def _update(self, child: _Child, run: PlannedRun, journal: Journal) -> int:
        """Bring one run up to date; returns the number of points sent."""
        attempt = journal.attempts()[-1]
        updated = _status(attempt)["updated"]
        ending = _ending(journal)
        if child.settled == ending:
            return 0
        # The state is read before the rows: if the run has ended by then, all rows exist.
        child.state = attempts.state(journal.run_dir, run.spec)
        has_ended = child.state != "running"
        if has_ended or child.attempt != attempt.name:
            self.log(child.mlflow_id, tags=contents.tags(run, attempt), params=contents.params(run.spec))
            self.client().log_inputs(child.mlflow_id, contents.inputs(run.spec, journal.run_dir))
            child.attempt = attempt.name
        if points := _points(child.rows.new()):
            # After a crash, points from the cursor on are sent again, and MLflow drops equal ones.
            self.log(child.mlflow_id, points, {STEP: child.rows.step, EVALUATED: child.rows.evaluated})
        if has_ended:
            with tempfile.TemporaryDirectory() as folder:
                contents.write_files(Path(folder), journal)
                self.client().log_artifacts(child.mlflow_id, folder)
            outcome = contents.outcome(journal)
            self.log(child.mlflow_id, tags={**outcome, "state": child.state, SETTLED: ending})
            child.settled = ending
        self.set_status(child.mlflow_id, STATUS[child.state], updated)
        return len(points)


def _points(rows: Sequence[Row]) -> list[Point]:
    return [
        (name, value, row.seconds, row.step)
        for row in rows
        for metric, value in row.metrics.items()
        if not metric.startswith(views.DETAILS)
        for name in (metric, *([views.FIRST[metric]] if metric in views.FIRST else []))
    ]


def _plan_status(states: Set[State]) -> str:
    """MLflow's status of a plan whose runs are in `states`."""
    status = next((state for state in ("running", "failed") if state in states), "interrupted")
    return STATUS["done" if states == {"done"} else status]


def _number(tag: str | None, default: int) -> int:
    """The value of a tag that should be an integer; `default` for one that somebody removed or changed."""
    return int(tag) if tag and re.fullmatch(r"-?\d{1,9}", tag) else default


def _ending(journal: Journal) -> str:
    """The last attempt and the time of its last update, which change with any more work; empty if it is damaged."""
    with suppress(RunFailed):
        for attempt in journal.attempts()[-1:]:
            return f"{attempt.name} {_status(attempt)['updated']}"
    return ""


def _status(attempt: Path) -> Status:
    status: Status = read_json(attempt / "status.json")
    return status
