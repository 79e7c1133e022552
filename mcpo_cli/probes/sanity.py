"""What a sound run should not show: equal rollouts, cut responses, a sampler that is not the trainer, bare answers."""

from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.probes.intervals import mean_over_steps
from mcpo_cli.runs import sanity
from mcpo_cli.runs.journal import Journal

PREFIX = "sanity/"
WORST = 5
"""Steps that are listed, of each metric."""


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """The metrics `sanity/x`, each as `x`, the mean over global steps, and `x_worst`, the largest.

    Values besides: `warnings`, the limits that were passed. Table `steps`: the metrics a global step. Table `worst`:
    the steps at which each was largest. Table `warnings`: see `runs/sanity.py`.
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
        found = {row["step"]: row[name] for row in table if name in row}
        values |= mean_over_steps(name, list(found.values()), list(found))
        values[f"{name}_worst"] = max(found.values())
        largest = sorted(found, key=lambda step: found[step], reverse=True)[:WORST]
        worst += [{"metric": name, "step": step, "value": found[step]} for step in largest]
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
