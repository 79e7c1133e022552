"""Signs of an unsound run: duplicate rollouts, cut responses, sampler and trainer that differ, bare answers."""

from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.probes.intervals import mean_over_steps
from mcpo_cli.runs import sanity
from mcpo_cli.runs.journal import Journal

PREFIX = "sanity/"
WORST = 5
"""Number of steps listed for each metric."""


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """Each metric `sanity/x` as `x`, its mean over global steps, and `x_worst`, its largest value.

    Another value is `warnings`, the number of limits exceeded. Table `steps`: the metrics at each global step. Table
    `worst`: the steps with the largest values of each metric. Table `warnings`: see `runs/sanity.py`.
    """
    rows = journal.steps()
    table: list[dict[str, Any]] = [
        {
            "step": row["step"],
            **{_short(name): value for name, value in row["metrics"].items() if name.startswith(PREFIX)},
        }
        for row in rows
    ]
    if not rows:
        return Finding({})
    warned = sanity.warnings(rows)
    values, worst = {"warnings": float(len(warned))}, []
    for name in sorted({name for row in table for name in row} - {"step"}):
        column = {row["step"]: row[name] for row in table if name in row}
        values |= mean_over_steps(name, list(column.values()), list(column))
        values[f"{name}_worst"] = max(column.values())
        largest = sorted(column, key=lambda step: column[step], reverse=True)[:WORST]
        worst += [{"metric": name, "step": step, "value": column[step]} for step in largest]
    return Finding(values, {"steps": table, "worst": worst, "warnings": [dict(one) for one in warned]})


def _short(name: str) -> str:
    return name.removeprefix(PREFIX)


PROBE = Probe(
    name="sanity",
    question="Is the run sound: independent rollouts, whole responses, one policy that samples and trains, reasoning?",
    needs=(),
    shows=("duplicates", "duplicates_expected", "truncated", "logp_difference", "bare_right", "warnings"),
    measure=measure,
)
