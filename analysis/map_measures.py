"""Statistics of the claims about when MCPO helps (`experiments/map-claims.yaml`, `map-mechanisms.yaml`)."""

import math
from collections.abc import Mapping
from statistics import fmean

from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS as OF_RUNS
from mcpo_cli.analysis.measures import WHOLE, Numbers, Statistic, of_probe
from mcpo_cli.config.plan import Cell
from mcpo_cli.config.schema import RunSpec

HIGH_DRIFT = 3e-3
"""What `preregistration.yaml` calls a high drift: about the median of the suite `map`."""
NEAR_MASTERY = (0.75, 1.0)
"""Accuracies of the prompts whose weight the reweighted advantage keeps from shrinking, ends left out."""


def drift(spec: RunSpec) -> float:
    """Learning rate times the mini-batches of a global step but the first.

    It grows with the way from the policy that sampled to the one that the last mini-batch trains.
    """
    return spec.train.lr * (_mini_batches(spec) - 1)


def _mini_batches(spec: RunSpec) -> int:
    return math.ceil(spec.train.prompts / spec.train.mini_batch)


def _returns(spec: RunSpec) -> bool:
    """Whether problems come back within the run."""
    return 0 < spec.task.distinct_problems < spec.train.prompts * spec.train.steps


def _drift(runs: Runs, cell: Cell) -> Numbers:
    return {WHOLE: drift(cell.spec)}


def _near_mastery(runs: Runs, cell: Cell) -> Numbers:
    low, high = NEAR_MASTERY
    rows = runs.journal(cell).rows("groups")
    share = fmean(low < row["p"] < high for row in rows)
    return {WHOLE: share * math.sqrt(cell.spec.train.rollouts)}


def _driven(runs: Runs, cell: Cell) -> Numbers:
    return OF_RUNS["pass@1"].measure(runs, cell) if _is_driven(cell.spec) else {}


def _elsewhere(runs: Runs, cell: Cell) -> Numbers:
    return {} if _is_driven(cell.spec) else OF_RUNS["pass@1"].measure(runs, cell)


def _is_driven(spec: RunSpec) -> bool:
    return _returns(spec) and drift(spec) >= HIGH_DRIFT


def _two_gradient_steps(runs: Runs, cell: Cell) -> Numbers:
    return OF_RUNS["next-step gap"].measure(runs, cell) if _mini_batches(cell.spec) == 2 else {}


STATISTICS: Mapping[str, Statistic] = {
    "drift": Statistic("learning rate times the mini-batches of a global step but the first", _drift),
    "share near mastery times root of G": Statistic(
        "share of sampled prompts with .75 < p < 1, over all steps, times the root of the rollouts a prompt",
        _near_mastery,
    ),
    "pass@1 where problems return and drift is high": Statistic(
        f"pass@1 after the last step, of runs whose pool comes back and whose drift is at least {HIGH_DRIFT:g}", _driven
    ),
    "effective share of rollouts": Statistic(
        "Kish's effective number of rollouts of a batch over their number, mean over steps",
        of_probe("weights", "effective_share"),
    ),
    "next-step gap with two gradient steps": Statistic(
        "next-step gap of the runs with two mini-batches a global step", _two_gradient_steps
    ),
    "pass@1 where they do not": Statistic("pass@1 after the last step, of all other runs", _elsewhere),
}
