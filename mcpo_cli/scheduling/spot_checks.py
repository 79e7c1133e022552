"""Spot checks: global steps of a finished run, trained again from its checkpoints and compared with its records.

The run's folder is only read. Each stretch is a run that begins at RUN@STEP without a change, in a temporary folder,
and is stopped after the last step that is compared.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcpo_cli import backends
from mcpo_cli.backends import feasible
from mcpo_cli.config import cost, forking
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.config.used_plugins import used_plugins
from mcpo_cli.errors import ConfigError, Interrupted
from mcpo_cli.runs import attempts, differences, origins, provenance
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.catalog import Run
from mcpo_cli.runs.differences import Compared, Difference
from mcpo_cli.runs.journal import Journal, read_json

COMPUTE = ("device", "threads", "dtype", "micro_batch", "micro_batch_tokens")
"""Settings that decide in which order numbers are added."""


@dataclass(frozen=True)
class Stretch:
    """Global steps that are trained again in one go."""

    start: int
    """The step whose state they start from: the nearest checkpoint before the first requested step, or 0."""
    asked: tuple[int, ...]

    @property
    def steps(self) -> range:
        """All global steps that are trained."""
        return range(self.start + 1, self.asked[-1] + 1)


@dataclass(frozen=True)
class StretchResult:
    """The result for one stretch."""

    stretch: Stretch
    exactly: bool
    why: str
    """The reason why the comparison was bit by bit, or within a tolerance."""
    compared: Sequence[Compared]
    """The steps that were trained, in order, and the states that the run has kept of them."""

    @property
    def difference(self) -> Difference | None:
        """The first value that differs."""
        return next((value for compared in self.compared for value in compared.differing), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        by_step = dict[int, list[Compared]]()
        for compared in self.compared:
            by_step.setdefault(compared.step, []).append(compared)
        first = self.difference
        return {
            "start": self.stretch.start,
            "asked": list(self.stretch.asked),
            "comparison": "bits" if self.exactly else "tolerance",
            "why": self.why,
            "steps": [
                {
                    "step": step,
                    "asked": step in self.stretch.asked,
                    "values": sum(compared.values for compared in parts),
                    "differing": sum(len(compared.differing) for compared in parts),
                    "weights_compared": any(compared.weights for compared in parts),
                }
                for step, parts in by_step.items()
            ],
            "first_difference": first.to_json() if first else None,
        }


def steps(spec: RunSpec, count: int, at: Sequence[int], seed: int) -> list[int]:
    """The global steps to check: `at`, or `count` of all steps that the run trained itself, drawn by `seed`.

    Raises:
        ConfigError: the run does not have the step, or copied it from the run that it is forked from.
    """
    parent, shared = forking.parse(spec.fork) if spec.fork else ("", 0)
    last = spec.train.steps
    if wrong := [step for step in at if not 1 <= step <= last]:
        raise ConfigError(
            f"--at {wrong[0]}: {spec.run_id} has the global steps 1 to {last}",
            fix=f"--at {min(max(wrong[0], 1), last)}",
            code="out_of_bounds",
        )
    if copied := [step for step in at if step <= shared]:
        raise ConfigError(
            f"--at {copied[0]}: {spec.run_id} has its first {shared} steps from {parent}",
            fix=f"mcpo verify {parent} --at {copied[0]}",
        )
    own_steps = range(shared + 1, last + 1)
    return sorted(set(at)) or sorted(random.Random(seed).sample(own_steps, min(count, len(own_steps))))


def stretches(run: Run, steps: Sequence[int]) -> list[Stretch]:
    """The stretches that contain `steps`, each from the nearest checkpoint before it.

    Raises:
        ConfigError: a fork's state at the fork is gone, so its steps cannot be trained again.
    """
    checkpoints = origins.kept(run.folder)
    starts = dict[int, list[int]]()
    for step in steps:
        starts.setdefault(max((kept_step for kept_step in checkpoints if kept_step < step), default=0), []).append(step)
    if run.spec.fork and 0 in starts:
        parent, shared = forking.parse(run.spec.fork)
        raise ConfigError(
            f"{run.spec.run_id} is a fork and its state after step {shared}, where it began, is gone",
            fix=f"mcpo verify {parent}, the run that it is forked from",
        )
    return [Stretch(start, tuple(group)) for start, group in starts.items()]


def check_run(run: Run) -> None:
    """Raise unless the run is done, its records match their checksums, and its plug-ins are unchanged.

    Raises:
        RunFailed: a record does not match its checksum. ConfigError: the run is not done, a plug-in has changed, or no
            run can begin at its states.
    """
    origins.check_backend(run.spec)
    Journal(run.folder).check_all()
    if (state := run.state) != "done":
        gaps = "; ".join(attempts.missing(run.folder, run.spec)) or state
        raise ConfigError(f"{run.spec.run_id} is not done: {gaps}", fix=f"mcpo runs show {run.spec.run_id}")
    if used_plugins(run.spec) != run.spec.plugins:
        raise ConfigError(
            f"{', '.join(run.spec.plugins)}: the plug-in is not the one that this run was trained with",
            fix="MCPO_PLUGINS=FOLDER of that plug-in",
            code="changed",
        )


def recorded_seconds(run: Run, parts: Sequence[Stretch]) -> float:
    """The seconds that the steps to be trained again took when the run was trained, evaluations left out."""
    steps = {step for stretch in parts for step in stretch.steps}
    rows = Journal(run.folder).steps()
    return sum(row["metrics"].get("perf/seconds", 0.0) for row in rows if row["step"] in steps)


def check(run: Run, parts: Sequence[Stretch], home: Path, advance: Callable[[], None]) -> Iterator[StretchResult]:
    """Train stretches again, below a temporary folder of `home`, and compare each step.

    advance: called after each step.

    Raises:
        ConfigError: see `feasible.check`. RunFailed: training failed.
    """
    feasible.check([cost.estimate(run.spec)], to_start=True)
    for stretch in parts:
        exactly, reason = how(run, stretch)
        with attempts.scratch(home, ".verify-") as temporary:
            folder = temporary / run.spec.run_id
            yield StretchResult(stretch, exactly, reason, _repeat(run, folder, stretch, advance, exactly=exactly))


def _repeat(
    run: Run, folder: Path, stretch: Stretch, advance: Callable[[], None], *, exactly: bool
) -> Sequence[Compared]:
    """Train a stretch in `folder` and compare its steps, and the state after the last; ends at a step that differs."""
    if stretch.start:
        origins.copy(run.folder, stretch.start, Attempt(folder, run.spec, 0))
    attempt, recorded, repeated = Attempt(folder, run.spec, stretch.start), Journal(run.folder), Journal(folder)
    # Step 0 is the base policy's evaluation.
    first, last, compared = stretch.start + 1 if stretch.start else 0, stretch.asked[-1], list[Compared]()

    def stop() -> bool:
        """Compare the steps since the last call; true after the last step, or after a step that differs."""
        end = max((row["step"] for row in repeated.steps()), default=0)
        for step in range(first + len(compared), min(end, last) + 1):
            if any(part.differing for part in compared):
                break
            compared.append(differences.of_step(recorded, repeated, step, exactly=exactly))
            if step:
                advance()
        return first + len(compared) > last or any(part.differing for part in compared)

    # Training that is stopped saves its state.
    compute = replace(run.spec.compute, checkpoint_every=run.spec.train.steps)
    try:
        backends.get(run.spec.backend).run(replace(run.spec, compute=compute), attempt, stop)
    except Interrupted:
        assert stop(), "nothing else stops it"
    finally:
        attempt.end("interrupted")
    stop()
    folders = (run.folder, folder)
    if not any(part.differing for part in compared) and all(last in origins.kept(place) for place in folders):
        compared.append(differences.of_states(*folders, last, exactly=exactly))
    return compared


def how(run: Run, stretch: Stretch) -> tuple[bool, str]:
    """True if this machine must reproduce the steps of a stretch bit by bit, and the reason."""
    machine, journal = provenance.here(), Journal(run.folder)
    rounding, compute = provenance.rounding(machine), run.spec.to_dict()["compute"]
    for attempt, last in journal.spans():
        start = read_json(attempt / "status.json")["start_step"]
        if start >= stretch.asked[-1] or last <= stretch.start:
            continue
        if not (origin := provenance.read(attempt)):
            return False, f"{attempt.name} has no record of the machine that trained it"
        if compute["device"] != "cpu" and any(record.get("machine", {}).get("gpus") for record in (origin, machine)):
            return False, "a GPU trains it here or did then, and its sums have no fixed order"
        for name, value in provenance.rounding(origin).items():
            if value != rounding[name]:
                return False, f"it was trained with {name} {value}, and this machine has {rounding[name]}"
        old_compute = read_json(attempt / "spec.json").get("compute", {})
        if changes := [name for name in COMPUTE if old_compute.get(name) != compute[name]]:
            return False, f"{attempt.name} had another compute.{changes[0]}"
    return True, ", ".join(f"{name} {value}" for name, value in rounding.items()) + ", as when the run was trained"
