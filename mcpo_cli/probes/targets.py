"""Resolves what `mcpo probe` measures: new runs, or the records or checkpoints of an existing run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcpo_cli import backends, paths
from mcpo_cli.config import plan
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.reading import key_of
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
"""Training problems rolled under a checkpoint by default if the training stream is endless."""


@dataclass(frozen=True)
class Target:
    """An existing run, or one of its checkpoints."""

    run: Run
    step: int | None
    """The step of the checkpoint; None means the whole run."""


def target(words: Sequence[str]) -> Target | None:
    """The run or checkpoint that `words` name; None if they name a suite, settings or nothing.

    Raises:
        ConfigError: no such run, or settings given for an existing run.
    """
    if not words or "=" in words[0] or plan.is_suite(words[0]):
        return None
    if len(words) > 1:
        fix = f"mcpo probe PROBE {' '.join(words[1:])}  (starts a new run)"
        raise ConfigError(f"{words[0]} is an existing run: its settings cannot be changed", fix=fix)
    folder = paths.named(words[0])
    step = re.fullmatch(r"step_(\d+)", folder.name)
    if folder.is_dir() and step:
        # RUN_ID/attempt_N/checkpoints/step_N
        run_id = folder.resolve().parent.parent.parent.name
        return Target(catalog.find(location(), run_id), int(step[1]))
    return Target(catalog.find(location(), words[0]), None)


def runs(probe: Probe, words: Sequence[str]) -> Plan:
    """The plan of the runs that `words` ask for: a suite, settings, or nothing.

    Raises:
        ConfigError: invalid settings.
    """
    suite, rest = plan.split_suite(words)
    if named := suite or (probe.suite if not rest else ""):
        return plan.from_suite(named, rest, f"mcpo probe {probe.name} {suite}".strip())
    given = {key_of(text) for text in rest}
    settings = [text for text in probe.settings if key_of(text) not in given]
    chosen = plan.from_overrides([*settings, *rest])
    command = chosen.command.replace("mcpo train", f"mcpo probe {probe.name}", 1)
    return replace(chosen, suite=f"probe-{probe.name}", command=command)


def existing(probe: Probe, target: Target, prompts: int | None) -> Measured:
    """The finding from a run's records, or from its checkpoints if one is named or the records lack needed rows.

    prompts: training problems to roll under each checkpoint; if given, the checkpoints are used.

    Raises:
        ConfigError: the run has no such checkpoint, or its backend cannot sample from it.
    """
    run = target.run
    journal = Journal(run.folder)
    if target.step is not None or prompts or probe.lacks(journal):
        journal = Journal(_observed(target, prompts or run.spec.task.distinct_problems or PROMPTS))
    return study.measure(probe, run.cell, journal)


def _observed(target: Target, prompts: int) -> Path:
    """The folder with the records of `target`'s checkpoints, created if it does not exist."""
    run = target.run
    backend = backends.get(run.spec.backend)
    kept = backend.kept(run.folder)
    steps = kept if target.step is None else [step for step in kept if step == target.step]
    if not steps:
        raise ConfigError(
            f"{run.spec.run_id} has no complete checkpoint"
            + ("" if target.step is None else f" of step {target.step}"),
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
