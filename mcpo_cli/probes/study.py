"""A probe over several runs: what it finds of each, and by arm over the seeds."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpo_cli.config.plan import Cell
from mcpo_cli.errors import RunFailed
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import stats


@dataclass(frozen=True)
class Measured:
    """What a probe found of one run. source: the folder of the records that it was computed from."""

    cell: Cell
    finding: Finding
    source: str

    def to_json(self) -> dict[str, Any]:
        """As `mcpo probe --json` prints it."""
        spec = self.cell.spec
        about = {"run_id": spec.run_id, "arm": self.cell.arm, "regime": spec.regime, "model": spec.model.name}
        return {**about, "seed": spec.seed, "records": self.source, **self.finding.to_json()}


def measure(probe: Probe, cell: Cell, journal: Journal) -> Measured:
    """The finding of `probe` in the records of one run.

    Raises:
        RunFailed: the run has none of the rows that the probe reads.
    """
    if lacks := probe.lacks(journal):
        raise RunFailed(
            f"{cell.spec.run_id} has no rows of kind {', '.join(lacks)}, which the probe {probe.name} reads",
            fix=f"mcpo probe {probe.name} KEY=VALUE ...  (a run of its own that records them)",
        )
    return Measured(cell, probe.measure(cell.spec, journal), str(journal.run_dir))


def document(probe: Probe, measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything that was found, as plain data."""
    about = {"probe": probe.name, "question": probe.question}
    return {**about, "arms": arms(probe, measured), "runs": [one.to_json() for one in measured]}


def arms(probe: Probe, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row an arm of each regime and model: the probe's main values, mean over seeds with a t-interval.

    Columns: regime, model, arm, seeds, then `x`, `x_low`, `x_high` of each value. One seed has no such bounds, and
    `x_run_low`, `x_run_high` where the finding has an interval of its own. A value that no run of the arm has is left
    out, and `x_seeds` says where fewer have it.
    """
    groups: dict[tuple[str, str, str], list[Measured]] = defaultdict(list)
    for one in measured:
        groups[one.cell.spec.regime, one.cell.spec.model.name, one.cell.arm].append(one)
    table = []
    for (regime, model, arm), members in groups.items():
        row: dict[str, Any] = {"regime": regime, "model": model, "arm": arm, "seeds": len(members)}
        for name in probe.shows:
            found = [one.finding.values for one in members if name in one.finding.values]
            row |= _mean(name, found, len(members))
        table.append(row)
    return table


def _mean(name: str, found: Sequence[Mapping[str, float]], members: int) -> dict[str, Any]:
    if not found:
        return {}
    interval = stats.t_interval([values[name] for values in found])
    row: dict[str, Any] = {name: interval.mean}
    if interval.n > 1:
        row |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    elif f"{name}_low" in found[0]:
        row |= {f"{name}_run_low": found[0][f"{name}_low"], f"{name}_run_high": found[0][f"{name}_high"]}
    return row | ({f"{name}_seeds": len(found)} if len(found) < members else {})


def shown(row: dict[str, Any], names: Iterable[str]) -> list[str]:
    """The values `names` of one row of `arms`, as text: mean ± half-width over seeds; of one run, with its bounds."""
    return [_text(row, name) for name in names]


def _text(row: dict[str, Any], name: str) -> str:
    if name not in row:
        return "-"
    digits = 4 if abs(row[name]) < 10 else 0
    if f"{name}_low" in row:
        return f"{row[name]:.{digits}f} ± {(row[f'{name}_high'] - row[f'{name}_low']) / 2:.{digits}f}"
    if f"{name}_run_low" in row:
        return f"{row[name]:.{digits}f} [{row[f'{name}_run_low']:.{digits}f}, {row[f'{name}_run_high']:.{digits}f}]"
    return f"{row[name]:.{digits}f}"
