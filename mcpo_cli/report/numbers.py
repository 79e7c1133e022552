"""Numbers of runs by name, `MEASURE.VALUE` of the registry `mcpo_cli.measures`; for claims and tables."""

from collections.abc import Collection, Mapping

import pandas as pd

from mcpo_cli import measures
from mcpo_cli.compare.equal_cost import AXES, curves
from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.measures.frames import PAIR, Runs
from mcpo_cli.render.product import Row

WHOLE = ""
"""Key of a number that describes the whole run."""
Numbers = Mapping[str, float]
"""Numbers of one run by part (tier, third of training, ...) or under WHOLE; undetermined ones are left out."""
EQUAL = {f"scores.pass@1 at equal {axis}": axis for axis in AXES}
"""Numbers that depend on the other runs: pass@1 at the largest cost that all runs of the model reach."""


def meaning(name: str) -> str:
    """What the number `name` means.

    Raises:
        ConfigError: there is no such measure, or it has no such value.
    """
    if axis := EQUAL.get(name):
        return f"pass@1 at the most {axis} that all runs reach, mean over the tiers, linear between evaluations"
    measure, _, value = name.partition(".")
    registry = measures.registry()
    if measure in registry and (text := registry[measure].meaning(value)):
        return text
    values = [f"{probe.name}.{value.removesuffix(', *')}" for probe in registry.values() for value in probe.values]
    choices = dict.fromkeys([*values, *EQUAL])
    raise ConfigError(f"unknown statistic '{name}': {nearest(name, choices)}", fix=mend("statistic: {}", name, choices))


def of_run(runs: Runs, run: PlannedRun, name: str) -> Numbers:
    """The number `name` of one run, or its parts; empty if the run lacks the rows that the measure reads."""
    if axis := EQUAL.get(name):
        return _at_equal_cost(runs, run, axis)
    measure, _, value = name.partition(".")
    if measures.get(measure).lacks(runs.journal(run)):
        return {}
    values = runs.finding(measure, run).values
    if value in values:
        return {WHOLE: values[value]}
    prefix = f"{value}, "
    return {key.removeprefix(prefix): number for key, number in values.items() if key.startswith(prefix)}


def _at_equal_cost(runs: Runs, run: PlannedRun, axis: str) -> Numbers:
    """pass@1 where `mcpo compare --at` compares; empty if a run did not record that cost."""

    def table() -> "pd.Series[float] | None":
        scores = runs.scores(1)
        if scores[AXES[axis]].isna().any():
            return None
        # A curve ends at the largest cost that all runs of its model reach.
        return curves(axis, scores, "pass@1").groupby(["model", "arm", *PAIR], sort=False)["value"].last()

    spec, scores = run.spec, runs.once(("at equal", axis), table)
    return {} if scores is None else {WHOLE: float(scores[spec.model.name, run.arm, spec.seed_of_base, spec.seed])}


def per_run(runs: Runs, names: Mapping[str, str], arms: Collection[str] = ()) -> list[Row]:
    """One row per run: regime, model, arm, base_seed, seed, run_id, and a column for each number that it has.

    names: the name of each column's number. A number that has parts (tiers, thirds) has a column for each part,
    `COLUMN, PART`.
    arms: by default all.
    """
    rows = []
    for run in runs.planned:
        if arms and run.arm not in arms:
            continue
        spec = run.spec
        row: Row = {"block": "run", "regime": spec.regime, "model": spec.model.name, "arm": run.arm}
        row |= {"base_seed": spec.seed_of_base, "seed": spec.seed, "run_id": spec.run_id}
        for column, name in names.items():
            parts = of_run(runs, run, name)
            row |= {column if part == WHOLE else f"{column}, {part}": value for part, value in parts.items()}
        rows.append(row)
    return rows
