"""Trains the trunk runs of a branch study and measures their points, each once; returns rows for analysis.

`runs/<trunk>/branches/step_<s>_<key>/` holds one point: its attempts, as a run's folder does. A killed measurement is
repeated from the same state; a completed measurement is never repeated.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from mcpo_cli import machine
from mcpo_cli.config import branching
from mcpo_cli.config.branching import Trunk
from mcpo_cli.errors import ConfigError, Interrupted, RunFailed, first_line
from mcpo_cli.home import run_dir
from mcpo_cli.methods.mcpo import ACTIVE, DRIFT, FELT
from mcpo_cli.records import BranchRow, MiniBatchRow
from mcpo_cli.runs import folders, origins
from mcpo_cli.runs.journal import Journal
from mcpo_cli.scheduling import start
from mcpo_cli.scheduling.display import duration, talk
from mcpo_cli.scheduling.forecast import forecast


def place(trunk: Trunk, folder: Path, step: int) -> Path:
    """The folder of the measurements at the trunk's state after `step`."""
    return folder / "branches" / f"step_{step}_{trunk.key}"


def is_measured(trunk: Trunk, folder: Path, step: int) -> bool:
    """True if the point has been measured."""
    return origins.is_done(place(trunk, folder, step))


def measure(study: str, trunks: Sequence[Trunk], command: str) -> None:
    """Train the trunk runs and measure their points, unless already done; then delete states that are not kept.

    `compute.parallel` processes work at a time, by default as many as fill the cores. Measurements do not wait for all
    trunk runs, whose states need much room until they have been measured.

    Raises:
        RunFailed: a trunk run failed, or a process that measures was killed. ConfigError: see `measure_point`.
        Interrupted: a signal asked to stop.
    """
    unmeasured = [trunk for trunk in trunks if _left(trunk)]
    if not unmeasured:
        return
    parallel = forecast(branching.plan(study, unmeasured, command)).parallel
    remaining = _Remaining(sum(len(_left(trunk)) for trunk in unmeasured))
    pool = machine.helpers(parallel)
    try:
        for first in range(0, len(unmeasured), parallel):
            batch = unmeasured[first : first + parallel]
            start.train(branching.plan(study, batch, command))
            steps = [(trunk, run_dir(trunk.spec.run_id), step) for trunk in batch for step in _left(trunk)]
            for future in as_completed([pool.submit(measure_point, *point) for point in steps]):
                future.result()
                talk(remaining.measured())
            for trunk in batch:
                folders.prune(run_dir(trunk.spec.run_id), trunk.kept_after)
    except KeyboardInterrupt as error:
        raise Interrupted("stopped; all points that were measured are kept", fix=command) from error
    except BrokenExecutor as error:
        raise RunFailed(
            f"a process that measured a point was killed: {first_line(error)}",
            fix=f"{command} compute.parallel=1  (it continues, and needs less memory)",
        ) from error
    finally:
        pool.shutdown(kill_workers=True)


def _left(trunk: Trunk) -> list[int]:
    folder = run_dir(trunk.spec.run_id)
    return [step for step in trunk.at if not is_measured(trunk, folder, step)]


@dataclass
class _Remaining:
    """How far the points are, and what the rest will take at the pace so far, the trunk runs included."""

    points: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def measured(self) -> str:
        """A sentence after one more point."""
        self.done += 1
        seconds = (time.monotonic() - self.began) / self.done * (self.points - self.done)
        return f"{self.done} of {self.points} points measured, about {duration(seconds)} left"


def points(trunks: Sequence[Trunk]) -> list[dict[str, Any]]:
    """The folder of the records of each point, as plain data."""
    measured = [(trunk, trunk.spec.run_id, step) for trunk in trunks for step in trunk.at]
    return [
        {"run_id": run_id, "step": step, "records": str(place(trunk, run_dir(run_id), step))}
        for trunk, run_id, step in measured
    ]


def measure_point(trunk: Trunk, folder: Path, step: int) -> None:
    """Measure one point, unless that has been done.

    Raises:
        ConfigError: the trunk kept no checkpoint of the step.
    """
    from mcpo_cli.backends.local import branching as engine

    if not is_measured(trunk, folder, step) and step not in origins.kept(folder):
        raise ConfigError(
            f"{trunk.spec.run_id} is done and has kept no state of step {step}, which this study branches from",
            fix=f"rm -r {folder}  (then the same command trains it again)",
        )
    point = place(trunk, folder, step)
    origins.record_once(point, trunk.spec, lambda attempt: engine.branch(trunk, attempt, folder, step))


def rows(trunk: Trunk, folder: Path) -> Iterator[dict[str, Any]]:
    """One row per point, arm, cohort and tier: means over prompts, with the settings that name the trunk run.

    Columns: run_id, model, base_seed, seed, step, arm, cohort, tier, batch (prompts of the batch), prompts, rollouts,
    before (accuracy of the rollouts before the step), change (the estimate of its change by the step), error (its
    standard error over prompts; NaN for one prompt), sampled_change (the same only from counts before and after),
    balance (0 in expectation), drift (mean |difference of log p| per token, nats); of an arm with a hinge prompts_felt
    (share of the held prompts outside the drift budget, over the mini-batches) and last_drift (mean |log pi - log
    pi_old| of their tokens at the last mini-batch, nats).
    """
    spec = trunk.spec
    facts = {name: spec.about[name] for name in ("model", "base_seed", "seed")}
    for step in trunk.at:
        journal = Journal(place(trunk, folder, step))
        groups: dict[tuple[str, str, str], list[BranchRow]] = defaultdict(list)
        for row in cast("list[BranchRow]", journal.rows("branches")):
            groups[row["arm"], row["cohort"], row["tier"]].append(row)
        updates = defaultdict[str, list[MiniBatchRow]](list)
        for update in journal.mini_batches():
            updates[update["arm"]].append(update)
        for (arm, cohort, tier), members in groups.items():
            names = {"step": step + 1, "arm": arm, "cohort": cohort, "tier": tier, "batch": spec.train.prompts}
            yield {"run_id": spec.run_id, **facts, **names, **_means(members), **_hinge(updates[arm])}


def _hinge(updates: Sequence[MiniBatchRow]) -> dict[str, float]:
    """The columns of the hinge over the mini-batches of one arm's step: NaN without a hinge or without held prompts."""
    sums = [update["sums"] for update in updates if FELT in update["sums"]]
    felt, held = sum(row[FELT][0] for row in sums), sum(row[FELT][1] for row in sums)
    drift, tokens = (sums[-1][DRIFT][0], sums[-1][ACTIVE][1]) if sums else (0.0, 0.0)
    return {"prompts_felt": felt / held if held else math.nan, "last_drift": drift / tokens if tokens else math.nan}


def _means(members: Sequence[BranchRow]) -> dict[str, float]:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    change = [row["change"] for row in members]
    P, centre = len(members), mean(change)
    spread = sum((value - centre) ** 2 for value in change) / (P - 1) if P > 1 else float("nan")
    return {
        "prompts": P,
        "rollouts": sum(row["n"] for row in members),
        "before": mean([row["c"] / row["n"] for row in members]),
        "change": centre,
        "error": (spread / P) ** 0.5,
        "sampled_change": mean([(row["c_after"] - row["c"]) / row["n"] for row in members]),
        "balance": mean([row["balance"] for row in members]),
        "drift": mean([row["drift"] for row in members]),
    }
