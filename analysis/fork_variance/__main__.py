"""Measures the runs that forks save against independent seeds.

    python -m mcpo_study.analysis.fork_variance [--dry-run]

`fork-variance.yaml` declares the runs and the hypotheses. Trains the runs that are missing, prints one row per arm and
fork, and writes the scores to `results/fork-variance.csv`.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.stats

from mcpo_cli.config import forking, plan
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.convert import convert
from mcpo_cli.home import run_dir
from mcpo_cli.runs.journal import Journal
from mcpo_cli.scheduling import start
from mcpo_cli.scheduling.forecast import forecast
from mcpo_cli.statistics.stats import Floats

from .. import EXPERIMENTS

STUDY = EXPERIMENTS / "fork-variance"
FILE, ROWS = STUDY / "fork-variance.yaml", STUDY / "results" / "fork-variance.csv"
WHOLE = 0
"""Used as a fork's step: the run was trained from the start."""
FEWEST = 6
"""Fewest pairs for a ratio of variances."""


@dataclass(frozen=True)
class Hypothesis:
    """The ratio of an arm is expected to be above `than`."""

    id: str
    claim: str
    arm: str
    at: int
    ratio: Literal["forked", "seeds"]
    than: float


@dataclass(frozen=True)
class Study:
    """The content of `fork-variance.yaml`."""

    settings: tuple[str, ...]
    seeds: int
    at: tuple[int, ...]
    arms: Mapping[str, tuple[str, ...]]
    hypotheses: tuple[Hypothesis, ...] = field(default=())


@dataclass(frozen=True)
class Reduction:
    """The factor by which pairing reduces the runs for the same standard error of a difference, with an interval."""

    ratio: float
    low: float
    high: float


def reduction(baseline_S: Floats, arm_S: Floats, level: float = 0.95) -> Reduction:
    """(Var baseline + Var arm) / Var(arm - baseline): the saving by pairs that share their random numbers.

    With the sum and the difference of a pair this is (1 + Var sum / Var difference) / 2. The interval of the ratio of
    two correlated variances is exact for normal scores (Pitman 1939, Morgan 1939).

    Args:
        baseline_S, arm_S: scores of the pairs s; different pairs share nothing.

    Raises:
        ValueError: fewer than 6 pairs, or all of them have the same difference.
    """
    S, sum_S, difference_S = len(baseline_S), baseline_S + arm_S, arm_S - baseline_S
    if S < FEWEST:
        raise ValueError(f"a ratio of variances needs at least {FEWEST} pairs, not {S}")
    variance = difference_S.var(ddof=1)
    if not variance > 0:
        raise ValueError("pairs that do not differ have no ratio of variances")
    ratio = sum_S.var(ddof=1) / variance
    correlation = np.corrcoef(sum_S, difference_S)[0, 1]
    t = scipy.stats.t.ppf((1 + level) / 2, S - 2)
    k = 1 + 2 * (1 - correlation**2) * t**2 / (S - 2)
    low, high = (ratio * (k + sign * math.sqrt(k**2 - 1)) for sign in (-1, 1))
    return Reduction(*(float((1 + value) / 2) for value in (ratio, low, high)))


def parents(study: Study) -> Plan:
    """The runs that are forked; they keep their states at the forks."""
    every = int(np.gcd.reduce(study.at))
    kept = [f"compute.checkpoint_every={every}", "compute.checkpoints=99", "compute.checkpoints_after=99"]
    return plan.from_overrides([*study.settings, f"seed={','.join(map(str, range(study.seeds)))}", *kept])


def children(study: Study, made: Plan) -> dict[tuple[str, int], list[RunSpec]]:
    """By arm and step of the fork (WHOLE: from the start): one run per parent, in the order of the parents."""
    found: dict[tuple[str, int], list[RunSpec]] = {}
    for arm, changes in study.arms.items():
        given = {word.partition("=")[0] for word in changes}
        kept = [word for word in study.settings if word.partition("=")[0] not in given]
        seeds = f"seed={','.join(map(str, range(study.seeds)))}"
        found[arm, WHOLE] = [cell.spec for cell in plan.from_overrides([*kept, *changes, seeds]).cells]
        for at in study.at:
            forks = [forking.plan(cell.spec, at, changes, "fork-variance").cells for cell in made.cells]
            found[arm, at] = [cell.spec for (cell,) in forks]
    return found


def score(spec: RunSpec) -> float:
    """pass@1 after the last step, mean over the held-out tiers."""
    rows = pd.DataFrame([row for row in Journal(run_dir(spec.run_id)).eval() if row["step"] == spec.train.steps])
    return float((rows["c"] / rows["n"]).groupby(rows["tier"]).mean().mean())


def table(rows: pd.DataFrame, level: float) -> list[dict[str, Any]]:
    """One row per arm and fork: mean difference, its standard deviation unpaired (`apart`) and paired, and `saved`.

    rows: columns seed, arm (empty for parents), at, score; others are ignored.
    """
    parent_S = rows[rows["arm"] == ""].sort_values("seed")["score"].to_numpy(dtype=np.float64)
    found = []
    for (arm, at), own in rows[rows["arm"] != ""].groupby(["arm", "at"], sort=False):
        own_S = own.sort_values("seed")["score"].to_numpy(dtype=np.float64)
        paired_S = own_S - parent_S
        saved = reduction(parent_S, own_S, level)
        apart = float(np.sqrt(parent_S.var(ddof=1) + own_S.var(ddof=1)))
        about = {"arm": str(arm), "at": int(str(at)), "pairs": len(own_S), "difference": float(paired_S.mean())}
        found.append({**about, "apart": apart, "paired": float(paired_S.std(ddof=1)), "saved": saved})
    return found


def verdict(one: Hypothesis, saved: Reduction) -> str:
    """The verdict on a hypothesis, from the interval of the ratio."""
    if saved.low > one.than:
        return "supported"
    return "contradicted" if saved.high < one.than else "unresolved"


def main(words: Sequence[str]) -> None:
    study = convert(Study, read_yaml(FILE), str(FILE))
    made = parents(study)
    runs = children(study, made)
    cells = [*made.cells, *(PlannedRun(f"{arm} @{at}", spec) for (arm, at), own in runs.items() for spec in own)]
    sys.stdout.write(f"{len(cells)} runs: {len(made.cells)} parents, each with {len(runs)} others\n")
    if "--dry-run" in words:
        return
    start.train(forecast(made))  # forks copy from them
    start.train(forecast(Plan("fork-variance", "fork-variance", tuple(cells))))
    every = {("", WHOLE): [cell.spec for cell in made.cells], **runs}
    rows = [
        {"seed": spec.seed, "arm": arm, "at": at, "score": score(spec), "run_id": spec.run_id}
        for (arm, at), own in every.items()
        for spec in own
    ]
    data = pd.DataFrame(rows)
    data.to_csv(ROWS, index=False, float_format="%.6g", lineterminator="\n")
    found = table(data, 1 - 0.05 / len(study.hypotheses))
    for row in found:
        saved = row.pop("saved")
        sys.stdout.write(f"{row}, ratio {saved.ratio:.2f} [{saved.low:.2f}, {saved.high:.2f}]\n")
        for one in study.hypotheses:
            if (one.arm, one.at) == (row["arm"], row["at"]):
                sys.stdout.write(f"  {one.id} ({one.claim}): {verdict(one, saved)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
