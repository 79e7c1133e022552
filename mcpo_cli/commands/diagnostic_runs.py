"""What the words of `mcpo probe` name: existing runs and checkpoints, or new diagnostic runs."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mcpo_cli import paths
from mcpo_cli.config import plan
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.reading import key_of
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location
from mcpo_cli.measures import Measure, summary
from mcpo_cli.runs import catalog
from mcpo_cli.runs.catalog import Run
from mcpo_cli.runs.journal import Journal
from mcpo_cli.scheduling import observations

PROMPTS = 1024
"""Training problems sampled under a checkpoint by default if the training stream is endless."""


@dataclass(frozen=True)
class Target:
    """An existing run, or one of its checkpoints."""

    run: Run
    planned: PlannedRun
    """The run with its arm among the runs that it is measured with."""
    step: int | None
    """The step of the checkpoint; None means the whole run."""


def targets(words: Sequence[str], command: str) -> list[Target]:
    """The runs or checkpoints that `words` name; empty if they name a suite or settings, or are empty.

    command: the verb that takes the words.

    Raises:
        ConfigError: unknown run, or settings given for an existing run.
    """
    if not words or "=" in words[0] or plan.is_suite(words[0]):
        return []
    if settings := [word for word in words if "=" in word]:
        fix = f"{command} {shlex.join(settings)}  (starts a new run)"
        raise ConfigError(f"{words[0]} is an existing run: its settings cannot be changed", fix=fix)
    runs = [_named(word) for word in words]
    planned_runs = catalog.named([run for run, _ in runs])
    return [Target(run, planned, step) for (run, step), planned in zip(runs, planned_runs, strict=True)]


def _named(word: str) -> tuple[Run, int | None]:
    """The run that `word` names, and the step where it names a checkpoint: RUN_ID/attempt_N/checkpoints/step_N."""
    folder = paths.named(word)
    step = re.fullmatch(r"step_(\d+)", folder.name)
    if folder.is_dir() and step:
        return catalog.find(location(), folder.resolve().parent.parent.parent.name), int(step[1])
    return catalog.find(location(), word), None


def runs(probe: Measure, words: Sequence[str]) -> Plan:
    """The plan of the runs that `words` ask for: a suite or settings; without words, the probe's.

    Raises:
        ConfigError: invalid settings.
    """
    suite, overrides = plan.split_suite(words)
    if suite_name := suite or (probe.suite if not overrides else ""):
        return plan.from_suite(suite_name, overrides, f"mcpo probe {probe.name} {suite}".strip())
    keys = {key_of(text) for text in overrides}
    settings = [text for text in probe.settings if key_of(text) not in keys]
    draft = plan.from_overrides([*settings, *overrides])
    command = draft.command.replace("mcpo train", f"mcpo probe {probe.name}", 1)
    return replace(draft, suite=f"probe-{probe.name}", command=command)


def existing(probe: Measure, target: Target, prompts: int | None) -> summary.Measured:
    """The finding from a run's records, or from its checkpoints if one is named or the records lack needed rows.

    prompts: training problems to sample under each checkpoint; if given, the checkpoints are used.

    Raises:
        ConfigError: the run has no such checkpoint, or its backend cannot sample from it.
    """
    run = target.run
    journal = Journal(run.folder)
    if target.step is not None or prompts or probe.lacks(journal):
        journal = Journal(observations.observe(run, target.step, prompts or run.spec.task.distinct_problems or PROMPTS))
    return summary.measure(probe, target.planned, journal)
