"""Runs a plan: one worker process per run, a few at a time. All checks come before the first start."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from mcpo_cli import backends, extras
from mcpo_cli.backends import feasible
from mcpo_cli.config.cost import Estimate
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed, one_line
from mcpo_cli.home import home, writing
from mcpo_cli.machine import LINUX
from mcpo_cli.records import State
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import write_json
from mcpo_cli.scheduling import outcome
from mcpo_cli.scheduling.display import Display
from mcpo_cli.scheduling.forecast import Expected, Forecast, makespan
from mcpo_cli.scheduling.limits import Watch, check_limits
from mcpo_cli.scheduling.outcome import RunOutcome
from mcpo_cli.scheduling.pace import Pace
from mcpo_cli.scheduling.process import ForkServer, LocalWorker, Worker
from mcpo_cli.scheduling.progress import Progress, RunView, Tracker, View, final_metrics
from mcpo_cli.scheduling.worker import BUSY
from mcpo_cli.trackers.follower import following_plan

WORKER = (sys.executable, "-P", "-m", "mcpo_cli.scheduling.worker")
"""A worker of a backend that preloads nothing. -P keeps files in the user's folder from shadowing modules."""
TICK_SECONDS = 0.25
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads of a worker sleep until all have done their part; they do not spin.

With other programs on the same cores, a step with two threads then takes a seventh of the time.
"""


@dataclass
class _Job:
    """One run while the scheduler works on it."""

    run: Expected
    tracker: Tracker
    state: State
    process: Worker | None = None
    watch: Watch | None = None
    broke: str | None = None
    """The limit that its worker was killed for."""
    tried: bool = False
    """True if this scheduler started a worker for it."""
    stops_sent: int = 0
    """Number of stop requests passed on to the worker."""
    error: str | None = None
    progress: Progress = field(default_factory=Progress)

    @property
    def spec(self) -> RunSpec:
        return self.run.spec

    @property
    def waits(self) -> bool:
        return not self.tried and self.state != "done"

    def look(self) -> None:
        """Bring `state` up to date."""
        self.state = attempts.state(self.run.folder, self.spec)


def run(expected: Forecast, display: Display, worker: Sequence[str] = ()) -> list[RunOutcome]:
    """Run every run of a plan that is not done.

    worker: a command that takes a run's id and is started in place of mcpo's own worker.

    Raises:
        ConfigError: a requirement is missing or unreachable; nothing was started.
        RunFailed: some runs did not finish; the others did.
        Interrupted: a signal asked to stop; every active run has written a checkpoint.
    """
    home()
    _check(expected.unfinished)
    plan, scheduler = expected.plan, _Scheduler(expected, display, worker)
    following = following_plan(plan, display.note, lambda: scheduler.stops > 0)
    with following, _signals(scheduler.stop), closing(scheduler):
        scheduler.loop()
    outcomes = [
        RunOutcome(job.run.planned, job.state, final_metrics(job.run.folder) if job.state == "done" else {}, job.error)
        for job in scheduler.jobs
    ]
    outcome.raise_unfinished(plan, expected.home, outcomes, stopped=scheduler.stops > 0)
    return outcomes


def _check(runs: Sequence[Estimate]) -> None:
    """Raise ConfigError if one of these runs cannot start here."""
    feasible.check(runs, to_start=True)
    specs = [run.spec for run in runs]
    for spec in specs:
        check_limits(spec)
        for tracker in spec.cluster.loggers:
            extras.require(tracker, f"cluster.loggers=[{tracker}]")
    if any(spec.cluster.launcher == "slurm" for spec in specs):
        extras.require("submitit", "cluster.launcher=slurm")
        from mcpo_cli.scheduling import slurm

        slurm.check()


class _Scheduler:
    """The scheduling loop and its state."""

    def __init__(self, expected: Forecast, display: Display, worker: Sequence[str]) -> None:
        self.expected, self.display, self.worker = expected, display, worker
        self.stops = 0
        self.servers: dict[tuple[str, ...], ForkServer] = {}
        self.began = time.monotonic()
        self.queue = [_Job(run, Tracker(run.folder), run.state) for run in expected.runs.values()]
        jobs = {job.spec.run_id: job for job in self.queue}
        self.jobs = [jobs[planned.spec.run_id] for planned in expected.plan.runs]
        self.pace = Pace(expected)

    def stop(self) -> None:
        """Ask the running workers to exit; the second call kills them. Takes effect at the next tick."""
        self.stops += 1

    def loop(self) -> None:
        """Start workers and follow them until no work is left."""
        while True:
            for job in self.jobs:
                self._follow(job)
            while not self.stops and (job_to_start := self._next()):
                self._start(job_to_start)
            self.display.update(self._view())
            if not any(job.process for job in self.jobs) and (self.stops or not any(job.waits for job in self.jobs)):
                return
            self._pass_on_stops()
            time.sleep(TICK_SECONDS)

    def close(self) -> None:
        """End the fork servers."""
        for server in self.servers.values():
            server.close()

    def _pass_on_stops(self) -> None:
        going = [job for job in self.jobs if job.process and job.stops_sent < min(self.stops, 2)]
        for job in going:
            assert job.process is not None
            if self.stops == 1:
                job.process.stop()
            else:
                job.process.kill()
            job.stops_sent = min(self.stops, 2)
        if going and self.stops == 1:
            self.display.note("stopping: runs write a checkpoint if it takes seconds (Ctrl-C again to kill them)")

    def _next(self) -> _Job | None:
        """The next waiting run, if a slot is free; runs whose base policy is not being trained come first."""
        busy = [job for job in self.jobs if job.process]
        if len(busy) >= self.expected.parallel:
            return None
        waiting = [job for job in self.queue if job.waits and job.state != "running"]
        bases_in_work = {job.spec.base_id for job in busy if job.progress.step == 0}
        ready = [job for job in waiting if job.spec.base_id not in bases_in_work]
        return next(iter(ready or waiting), None)

    def _start(self, job: _Job) -> None:
        # Another scheduler may have started or finished it meanwhile.
        job.look()
        if job.state in ("running", "done"):
            return
        spec, folder, plan = _placed(job.spec), job.run.folder, self.expected.plan
        job.tried = True
        try:
            # Before the settings are written: the folder may be a link to another run's, which would be overwritten.
            attempts.check_own(folder, spec)
            write_json(folder / "spec.json", spec.to_dict())
            if not (folder / "origin.json").exists():
                origin = {"suite": plan.suite, "arm": job.run.planned.arm, "command": plan.command}
                write_json(folder / "origin.json", origin)
            with writing(folder / "worker.log"):
                job.process = self._worker(job)
        except RunFailed as error:
            job.state, job.error = "failed", one_line(str(error))
            return
        job.watch = Watch(spec.compute, job.process)
        job.state = "running"

    def _worker(self, job: _Job) -> Worker:
        """A local process or a SLURM job."""
        spec, folder = job.spec, job.run.folder
        threads = {name: str(spec.compute.threads) for name in THREAD_VARIABLES} | WAITING
        command = [*(self.worker or WORKER), spec.run_id]
        environment, log = {**threads, "MCPO_HOME": str(self.expected.home)}, folder / "worker.log"
        if spec.cluster.launcher == "local":
            if LINUX and (module := backends.get(spec.backend).preloads) and not self.worker:
                # Libraries read the environment as they are loaded.
                key = (module, *environment.values())
                if key not in self.servers or self.servers[key].has_ended:
                    self.servers[key] = ForkServer(module, environment)
                return self.servers[key].start(spec.run_id, log)
            return LocalWorker(command, environment, log)
        from mcpo_cli.scheduling.slurm import SlurmTask, SlurmWorker

        worker = SlurmWorker(spec.run_id, spec.cluster, SlurmTask(command, environment, folder))
        self.display.note(f"{spec.run_id}: SLURM job {worker.job_id}")
        return worker

    def _follow(self, job: _Job) -> None:
        if job.process:
            job.progress = job.tracker.read()
            if job.process.pid or job.progress.phase != "starting":
                self.pace.see(job.spec.run_id, job.progress.step, time.monotonic())
            if (code := job.process.poll()) is not None:
                self._end(job, job.process.pid, code)
            elif job.watch and not job.broke and (broke := job.watch.exceeded(job.progress)):
                job.broke = broke
                job.process.kill()
            self._pass_on_messages(job)
        elif job.state == "running":
            # Another process trains it; once that exits, the run is done or this scheduler continues it.
            job.progress = job.tracker.read()
            self._pass_on_messages(job)
            if not attempts.is_owned(job.run.folder):
                job.look()

    def _end(self, job: _Job, pid: int, code: int) -> None:
        """Record that the worker, process `pid`, exited with `code`."""
        job.process = None
        job.look()
        if code == BUSY or (code == 0 and job.state == "running"):
            # Another scheduler's worker holds the run, which this one may have just finished: wait for it.
            job.tried, job.state = False, "running"
        elif code < 0 and job.broke:
            attempts.mark_failed(job.run.folder, pid, job.broke)
            job.state, job.error = "failed", one_line(job.broke)
        else:
            job.state, job.error = outcome.ending(job.run.folder, job.spec, pid, code, job.state)

    def _pass_on_messages(self, job: _Job) -> None:
        for message in job.tracker.messages():
            self.display.note(f"{job.spec.run_id}: {message}")

    def _view(self) -> View:
        now = time.monotonic()
        going = [*(job for job in self.jobs if job.process), *(job for job in self.queue if job.waits)]
        left = {job.spec.run_id: self.pace.seconds_left(job.spec.run_id, now) for job in going}
        runs = [
            RunView(job.run.planned, job.state, job.progress, job.error, left.get(job.spec.run_id)) for job in self.jobs
        ]
        seconds = self.pace.loading(now - self.began) + makespan([*left.values()], self.expected.parallel)
        return View(self.expected.plan.suite, runs, now - self.began, seconds, stopping=self.stops > 0)


def _placed(spec: RunSpec) -> RunSpec:
    """The `spec` that the worker reads: on several SLURM nodes it joins the Ray cluster that its job starts."""
    cluster = spec.cluster
    if cluster.launcher == "local" or cluster.nodes == 1:
        return spec
    return replace(spec, cluster=replace(cluster, ray_address="auto"))


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for every SIGINT and SIGTERM."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
