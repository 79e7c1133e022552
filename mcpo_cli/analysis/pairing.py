"""Whether the runs of a comparison pair: a pair is one seed from one base policy, trained once by each arm."""

from collections.abc import Mapping, Sequence

import pandas as pd

from mcpo_cli.analysis.frames import PAIR, Runs
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.errors import ConfigError, McpoError

Pair = tuple[int, int]
"""Base seed and seed."""


def check(last: pd.DataFrame, plan: Plan) -> None:
    """Raise ConfigError unless all arms of a model have the same seeds and were evaluated on the same problems."""
    pairs = _pairs(plan.cells)
    for model in dict.fromkeys(model for model, _ in pairs):
        seeds = {arm: held for (of, arm), held in pairs.items() if of == model}
        if len(set(map(frozenset, seeds.values()))) > 1:
            raise _unpaired(plan, model, seeds)
    for of, rows in last.groupby("model", sort=False):
        asked: dict[frozenset[tuple[str, str]], set[str]] = {}
        for (arm, *_), here in rows.groupby(["arm", *PAIR], sort=False):
            asked.setdefault(frozenset(zip(here["tier"], here["problem"], strict=True)), set()).add(str(arm))
        if len(asked) > 1:
            raise ConfigError(
                f"{plan.suite}: the runs on {of} were evaluated on different problems, which do not pair: "
                + " against ".join(", ".join(sorted(arms)) for arms in asked.values()),
                fix="train them with one value of task.*, eval.problems and eval.samples",
                code="nothing_pairs",
            )


def _unpaired(plan: Plan, model: str, seeds: Mapping[str, set[Pair]]) -> ConfigError:
    """The error of arms with different seeds: the runs whose seeds all arms have can be compared."""
    common = set.intersection(*seeds.values())
    listed = "; ".join(
        f"{arm}: {', '.join(str(seed) if base == seed else f'{base}/{seed}' for base, seed in sorted(held))}"
        for arm, held in seeds.items()
    )
    kept = [one.spec.run_id for one in plan.cells if (one.spec.seed_of_base, one.spec.seed) in common]
    fix = f"mcpo compare {' '.join(kept)}" if kept else "train the seeds of one arm with the settings of the others"
    return ConfigError(f"the arms on {model} have different seeds, {listed}", fix=fix, code="nothing_pairs")


def check_failed(data: Runs, baseline: str) -> None:
    """Raise McpoError where failures leave an arm without a pair to compare."""
    scored = _pairs(data.cells)
    for model, arm in _pairs(data.plan.cells) if data.failed else ():
        if not scored.get((model, arm), set()) & scored.get((model, baseline), set()):
            errors = "; ".join(f"{one.cell.arm}, {one.cell.spec.run_id}: {one.error}" for one in data.failed)
            raise McpoError(
                f"{data.plan.suite}: no seed has a completed run of both {arm} and {baseline} on {model}, as runs "
                f"failed: {errors}",
                fix=f"compare the other arms alone, or continue the runs: {data.plan.command}",
            )


def _pairs(cells: Sequence[PlannedRun]) -> dict[tuple[str, str], set[Pair]]:
    """The pairs of each model and arm."""
    pairs: dict[tuple[str, str], set[Pair]] = {}
    for cell in cells:
        pairs.setdefault((cell.spec.model.name, cell.arm), set()).add((cell.spec.seed_of_base, cell.spec.seed))
    return pairs
