"""What `mcpo probe` measures: runs that it starts, the records of a run that exists, or the checkpoints of one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcpo_cli import backends
from mcpo_cli.config import load, plan
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location
from mcpo_cli.probes import study
from mcpo_cli.probes.base import Probe
from mcpo_cli.probes.study import Measured
from mcpo_cli.runs import catalog, provenance
from mcpo_cli.runs.attempts import Attempt, owned
from mcpo_cli.runs.catalog import Run
from mcpo_cli.runs.journal import Journal, read_json

PROMPTS = 1024
"""Rolled under a checkpoint where the training stream has no end."""


@dataclass(frozen=True)
class Target:
    """A run that is there. step: of the checkpoint that was named, None for the run as a whole."""

    run: Run
    step: int | None


def target(words: Sequence[str]) -> Target | None:
    """The run or checkpoint that `words` name; None where they name a suite, settings or nothing.

    Raises:
        ConfigError: no such run, or settings for a run that is there.
    """
    if not words or "=" in words[0] or plan.is_suite(words[0]):
        return None
    if len(words) > 1:
        fix = f"mcpo probe PROBE {' '.join(words[1:])}  (a run of its own)"
        raise ConfigError(f"{words[0]} is a run that is there: its settings cannot be changed", fix=fix)
    folder = Path(words[0])
    step = re.fullmatch(r"step_(\d+)", folder.name)
    if folder.is_dir() and step:
        # RUN_ID/attempt_N/checkpoints/step_N
        run_id = folder.resolve().parent.parent.parent.name
        return Target(catalog.find(location(), run_id), int(step[1]))
    return Target(catalog.find(location(), words[0]), None)


def runs(probe: Probe, words: Sequence[str]) -> Plan:
    """The runs that `words`, a suite or settings or nothing, ask for.

    Raises:
        ConfigError: bad settings.
    """
    suite, rest = plan.split_suite(words)
    if named := suite or (probe.suite if not rest else ""):
        return plan.from_suite(named, rest, f"mcpo probe {probe.name} {suite}".strip())
    given = {load.override_key(text) for text in rest}
    settings = [text for text in probe.settings if load.override_key(text) not in given]
    found = plan.from_overrides([*settings, *rest])
    command = found.command.replace("mcpo train", f"mcpo probe {probe.name}", 1)
    return replace(found, suite=f"probe-{probe.name}", command=command)


def existing(probe: Probe, target: Target, prompts: int | None) -> Measured:
    """The finding from the records of a run; from its checkpoints where one is named or the records lack something.

    prompts: training problems to roll under each checkpoint; given, it asks for the checkpoints.

    Raises:
        ConfigError: the run keeps no such checkpoint, or its backend cannot roll under it.
    """
    run = target.run
    cell = Cell(run.origin.get("arm", run.spec.method.label), run.spec)
    journal = Journal(run.folder)
    if target.step is not None or prompts or probe.lacks(journal):
        journal = Journal(_observed(target, prompts or run.spec.task.distinct_problems or PROMPTS))
    return study.measure(probe, cell, journal)


def _observed(target: Target, prompts: int) -> Path:
    """The folder of the records of `target`'s checkpoints; made now where it is not there."""
    run = target.run
    backend = backends.get(run.spec.backend)
    kept = backend.kept(run.folder)
    steps = kept if target.step is None else [step for step in kept if step == target.step]
    if not steps:
        raise ConfigError(
            f"{run.spec.run_id} keeps no whole checkpoint" + ("" if target.step is None else f" of step {target.step}"),
            fix=f"mcpo runs show {run.spec.run_id}",
        )
    folder = run.folder / "probes" / f"steps_{'_'.join(map(str, steps))}_prompts_{prompts}"
    with owned(folder):
        attempts = Journal(folder).attempts()
        if not attempts or read_json(attempts[-1] / "status.json")["state"] != "done":
            attempt = Attempt(folder, run.spec, 0)
            provenance.write(attempt.folder, provenance.parent_command())
            try:
                backend.observe(run.spec, attempt, run.folder, steps, prompts)
            except BaseException as error:
                attempt.end("failed", str(error))
                raise
            attempt.end("done")
    return folder
