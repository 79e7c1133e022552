"""Applies a probe to new runs, or to records or checkpoints of an existing one; summarizes each arm over its seeds."""

import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcpo_cli import paths
from mcpo_cli.config import plan
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.reading import key_of
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.home import location
from mcpo_cli.measures.base import Finding, Measure
from mcpo_cli.runs import catalog
from mcpo_cli.runs.catalog import Run
from mcpo_cli.runs.journal import Journal
from mcpo_cli.scheduling import observations
from mcpo_cli.statistics import stats


@dataclass(frozen=True)
class Measured:
    """A probe's finding for one run."""

    cell: PlannedRun
    finding: Finding
    source: str
    """The folder of the records that it was computed from."""

    def to_json(self) -> dict[str, Any]:
        """The form that `mcpo probe --json` prints."""
        spec = self.cell.spec
        about = {"run_id": spec.run_id, "arm": self.cell.arm, **spec.about}
        return {**about, "records": self.source, **self.finding.to_json()}


def measure(probe: Measure, cell: PlannedRun, journal: Journal) -> Measured:
    """The finding of `probe` in the records of one run.

    Raises:
        RunFailed: the run lacks a kind of rows that the probe reads.
    """
    if lacks := probe.lacks(journal):
        raise RunFailed(
            f"{cell.spec.run_id} has no rows of kind {', '.join(lacks)}, which the probe {probe.name} reads",
            fix=f"mcpo probe {probe.name} KEY=VALUE ...  (starts a run that records them)",
        )
    return Measured(cell, probe.measure(cell.spec, journal), str(journal.run_dir))


def document(probe: Measure, measured: Sequence[Measured]) -> dict[str, Any]:
    """The findings of all runs and the summary by arm, as plain data."""
    about = {"probe": probe.name, "question": probe.question}
    return {**about, "arms": arms(probe, measured), "runs": [one.to_json() for one in measured]}


def arms(probe: Measure, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row per regime, model and arm: the probe's main values, as means over seeds with t-intervals.

    Columns: regime, model, arm, seeds, then `x`, `x_low`, `x_high` of each value. Two seeds have no
    bounds. With one seed, they are those of the run's own interval, `x_run_low` and `x_run_high`, if it has one. A
    value that no run of the arm has is left out; `x_seeds` is the number of runs that have it, if some lack it.
    """
    groups: dict[tuple[str, str, str], list[Measured]] = defaultdict(list)
    for one in measured:
        groups[one.cell.spec.regime, one.cell.spec.model.name, one.cell.arm].append(one)
    table = []
    for (regime, model, arm), members in groups.items():
        row: dict[str, Any] = {"regime": regime, "model": model, "arm": arm, "seeds": len(members)}
        for name in probe.shows:
            having = [one.finding.values for one in members if name in one.finding.values]
            row |= _mean(name, having, len(members))
        table.append(row)
    return table


def _mean(name: str, having: Sequence[Mapping[str, float]], members: int) -> dict[str, Any]:
    if not having:
        return {}
    interval = stats.t_interval([values[name] for values in having])
    row: dict[str, Any] = {name: interval.mean}
    if interval.n >= stats.LEAST:
        row |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    elif interval.n == 1 and f"{name}_low" in having[0]:
        row |= {f"{name}_run_low": having[0][f"{name}_low"], f"{name}_run_high": having[0][f"{name}_high"]}
    return row | ({f"{name}_seeds": len(having)} if len(having) < members else {})


def shown(row: dict[str, Any], name: str) -> str:
    """The value `name` of a row of `arms` as text: mean ± half-width over seeds; a single run with its bounds."""
    if name not in row:
        return "-"
    digits = 4 if abs(row[name]) < 10 else 0
    if f"{name}_low" in row:
        return f"{row[name]:.{digits}f} ± {(row[f'{name}_high'] - row[f'{name}_low']) / 2:.{digits}f}"
    if f"{name}_run_low" in row:
        return f"{row[name]:.{digits}f} [{row[f'{name}_run_low']:.{digits}f}, {row[f'{name}_run_high']:.{digits}f}]"
    return f"{row[name]:.{digits}f}"


PROMPTS = 1024
"""Training problems sampled under a checkpoint by default if the training stream is endless."""


@dataclass(frozen=True)
class Target:
    """An existing run, or one of its checkpoints."""

    run: Run
    cell: PlannedRun
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
    found = [_named(word) for word in words]
    cells = catalog.named([run for run, _ in found])
    return [Target(run, cell, step) for (run, step), cell in zip(found, cells, strict=True)]


def _named(word: str) -> tuple[Run, int | None]:
    """The run that `word` names, and the step where it names a checkpoint: RUN_ID/attempt_N/checkpoints/step_N."""
    folder = paths.named(word)
    step = re.fullmatch(r"step_(\d+)", folder.name)
    if folder.is_dir() and step:
        return catalog.find(location(), folder.resolve().parent.parent.parent.name), int(step[1])
    return catalog.find(location(), word), None


def runs(probe: Measure, words: Sequence[str]) -> Plan:
    """The plan of the runs that `words` ask for: a suite or settings; without words, those of the probe.

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


def existing(probe: Measure, target: Target, prompts: int | None) -> Measured:
    """The finding from a run's records, or from its checkpoints if one is named or the records lack needed rows.

    prompts: training problems to sample under each checkpoint; if given, the checkpoints are used.

    Raises:
        ConfigError: the run has no such checkpoint, or its backend cannot sample from it.
    """
    run = target.run
    journal = Journal(run.folder)
    if target.step is not None or prompts or probe.lacks(journal):
        journal = Journal(observations.observe(run, target.step, prompts or run.spec.task.distinct_problems or PROMPTS))
    return measure(probe, target.cell, journal)
