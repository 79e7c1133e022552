"""A measure applied to runs, and the summary of its main values by arm."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.errors import RunFailed
from mcpo_cli.measures.base import Finding, Measure
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import stats


@dataclass(frozen=True)
class Measured:
    """The finding of a measure for one run."""

    planned: PlannedRun
    finding: Finding
    source: str
    """The folder of the records that it was computed from."""

    def to_json(self) -> dict[str, Any]:
        """The form that `mcpo probe --json` prints."""
        spec = self.planned.spec
        facts = {"run_id": spec.run_id, "arm": self.planned.arm, **spec.about}
        return {**facts, "records": self.source, **self.finding.to_json()}


def measure(probe: Measure, run: PlannedRun, journal: Journal) -> Measured:
    """The finding of `probe` in the records of one run.

    Raises:
        RunFailed: the run lacks a kind of rows that the probe reads, or the probe returned something else.
    """
    if lacks := probe.lacks(journal):
        raise RunFailed(
            f"{run.spec.run_id} has no rows of kind {', '.join(lacks)}, which the probe {probe.name} reads",
            fix=f"mcpo probe {probe.name} KEY=VALUE ...  (starts a run that records them)",
        )
    finding: Any = probe.measure(run.spec, journal)
    if not isinstance(finding, Finding):
        raise RunFailed(
            f"the probe {probe.name} returned {type(finding).__name__}, not a Finding",
            fix='return Finding({"VALUE": number})',
            code="bad_function",
        )
    return Measured(run, finding, str(journal.run_dir))


def document(probe: Measure, measured: Sequence[Measured]) -> dict[str, Any]:
    """The findings of all runs and the summary by arm, as plain data."""
    facts = {"probe": probe.name, "question": probe.question}
    return {**facts, "arms": arms(probe, measured), "runs": [run.to_json() for run in measured]}


def arms(probe: Measure, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row per regime, model and arm: the probe's main values, as means over seeds with t-intervals.

    Columns: regime, model, arm, seeds, then `x`, `x_low`, `x_high` of each value. Two seeds have no bounds. With one
    seed, the bounds are the run's own interval, `x_run_low` and `x_run_high`, if it has an interval. A value that no
    run of the arm has is left out; `x_seeds` is the number of runs that have it, if some lack it.
    """
    groups: dict[tuple[str, str, str], list[Measured]] = defaultdict(list)
    for run in measured:
        groups[run.planned.spec.regime, run.planned.spec.model.name, run.planned.arm].append(run)
    table = []
    for (regime, model, arm), members in groups.items():
        row: dict[str, Any] = {"regime": regime, "model": model, "arm": arm, "seeds": len(members)}
        for name in probe.shows:
            having = [run.finding.values for run in members if name in run.finding.values]
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
