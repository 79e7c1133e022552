"""Compares the estimate of branch studies with exact sums.

    python -m mcpo_study.analysis.branch_estimator [FILE [MODEL ...]]

FILE, by default `branch-estimator.yaml`, declares runs, sizes and hypotheses. Trains the trunk runs that are missing,
measures their points, writes the rows to `results/` under the file's name (rows of other models stay) and prints the
results.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from mcpo_cli.backends.local import branching as engine
from mcpo_cli.backends.local.branching import Cohort, Draws, Point
from mcpo_cli.backends.local.sampler import Rollouts
from mcpo_cli.config import branching
from mcpo_cli.config.branching import Sizes, Study, Trunk
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.scheduling import start
from mcpo_cli.scheduling.forecast import forecast
from mcpo_cli.statistics import stats

from .. import EXPERIMENTS

STUDY = EXPERIMENTS / "branch-estimator"
FILE, ROWS = STUDY / "branch-estimator.yaml", STUDY / "results" / "branch-estimator.csv"


@dataclass(frozen=True)
class Where:
    """The trunk run of one model, as in a branch study."""

    trunk: tuple[str, ...]
    at: tuple[int, ...]
    arms: Mapping[str, tuple[str, ...]]
    sizes: Sizes


@dataclass(frozen=True)
class Hypothesis:
    """A number is expected between two bounds."""

    id: str
    claim: str
    model: str
    cohort: Literal["mastered", "held_out"]
    number: Literal["bias", "error"]
    low: float
    high: float


@dataclass(frozen=True)
class Definition:
    """The content of `branch-estimator.yaml`."""

    replicates: int
    group: int
    models: Mapping[str, Where]
    hypotheses: tuple[Hypothesis, ...]

    def trunk(self, model: str) -> Trunk:
        """The trunk run of a model, whose points are measured with the rollouts of all replicates together."""
        where, sizes = self.models[model], self.models[model].sizes
        every = Sizes(controls=sizes.controls * self.replicates, held_out=sizes.held_out * self.replicates)
        (found,) = branching.trunks(Study(where.trunk, where.at, where.arms, sizes=every), [])
        return found


@dataclass
class Response:
    """A distinct response to a prompt, and the draws that gave it."""

    correct: bool
    before: float
    """Its probability before the step."""
    after: float
    pairs: set[int]
    """Draw i before the step and draw i after it are pair i."""
    drawn: tuple[int, int] = (0, 0)
    """Number of times that it was drawn before and after."""


@dataclass(frozen=True)
class Exact:
    """The change of a prompt's accuracy: exact for the responses that were drawn, counted for the others."""

    change: float
    noise: float
    """Standard error of the counted part."""
    covered: float
    """Probability before the step of all responses that were drawn."""


def exact(responses: Sequence[Response], draws: int) -> Exact:
    """The change from `draws` responses before the step and as many after it.

    Without pair i, the sum runs over the responses of the other pairs, and pair i counts its new responses: this has
    the change as its expectation. The result is the mean over i. A response of a single pair is missing from one sum.
    """
    correct = [one for one in responses if one.correct]
    new = [one for one in correct if len(one.pairs) == 1]
    total = sum(one.after - one.before for one in correct)
    left_out = sum(one.after - one.before for one in new)
    counted = sum(one.drawn[1] - one.drawn[0] for one in new)
    return Exact(total + (counted - left_out) / draws, len(new) ** 0.5 / draws, sum(one.before for one in responses))


def responses(cohort: Cohort, both: Draws, index: int) -> list[Response]:
    """The distinct responses to prompt `index`, in the order in which they were first drawn."""
    found: dict[tuple[int, ...], Response] = {}
    n = cohort.correct_PG.shape[1]
    for side, (rollouts, moved_PNT) in enumerate(zip((cohort.rollouts, both.after), both.moved_PNT, strict=True)):
        # Measured before the step for the first side, from the sampler for the second.
        known_G = (cohort.logp_PGT if side == 0 else rollouts.logp_PGT * rollouts.mask_PGT)[index].double().sum(-1)
        moved_G = moved_PNT[index].sum(-1)
        before_G, after_G = (known_G, known_G + moved_G) if side == 0 else (known_G - moved_G, known_G)
        for pair, tokens in enumerate(_tokens(rollouts, index)):
            one = found.setdefault(
                tokens,
                Response(
                    bool(both.correct_PN[index, side * n + pair]),
                    float(before_G[pair].exp()),
                    float(after_G[pair].exp()),
                    set(),
                ),
            )
            one.pairs.add(pair)
            one.drawn = (one.drawn[0] + (side == 0), one.drawn[1] + (side == 1))
    return list(found.values())


def _tokens(rollouts: Rollouts, index: int) -> Iterator[tuple[int, ...]]:
    """Each response's tokens, with the end token if it was drawn: a response that was cut is a different one."""
    for row, length in zip(rollouts.token_PGT[index].tolist(), rollouts.length_PG[index].tolist(), strict=True):
        yield tuple(row[:length])


def rows(point: Point, cohort: Cohort, definition: Definition) -> Iterator[dict[str, Any]]:
    """One row per group of prompts and replicate: the estimate, the standard error that it claims, the exact change."""
    both, n = engine.drawn(point, cohort), cohort.correct_PG.shape[1]
    value_PN = (both.tilt_PN * both.correct_PN).numpy()
    # The draws before the step, and those after it, are split into one part per replicate.
    part_PKn = value_PN.reshape(len(value_PN), 2, definition.replicates, -1).transpose(0, 2, 1, 3)
    change_PK = part_PKn.mean((-1, -2))
    known_P = [exact(responses(cohort, both, index), n) for index in range(len(cohort.problems))]
    size = definition.group if cohort.name == "held_out" else len(known_P)
    for group, first in enumerate(range(0, len(known_P), size)):
        members = slice(first, first + size)
        known, P = known_P[members], len(known_P[members])
        for replicate in range(definition.replicates):
            change_P = change_PK[members, replicate]
            yield {
                "step": point.trainer.step,
                "arm": point.arm,
                "cohort": cohort.name,
                "tier": cohort.tier,
                "group": group,
                "replicate": replicate,
                "prompts": P,
                "change": change_P.mean(),
                "error": change_P.std(ddof=1) / P**0.5 if P > 1 else float("nan"),
                "exact": np.mean([one.change for one in known]),
                "noise": sum(one.noise**2 for one in known) ** 0.5 / P,
                "covered": np.mean([one.covered for one in known]),
            }


def bias(data: pd.DataFrame) -> stats.Interval:
    """Estimate minus exact change, mean over prompts, points and arms; the interval is over replicates.

    The counted part of the exact changes is the same in all replicates, so its variance is added. It is not averaged
    over arms, because they share draws.
    """
    weighed = data.assign(distance=(data["change"] - data["exact"]) * data["prompts"])
    sums = weighed.groupby("replicate")[["distance", "prompts"]].sum()
    value_K = (sums["distance"] / sums["prompts"]).to_numpy()
    once = data[data["replicate"] == 0].groupby(["step", "tier", "group"])[["noise", "prompts"]].mean()
    noise = float(((once["noise"] * once["prompts"]) ** 2).sum() ** 0.5 / once["prompts"].sum())
    K = len(value_K)
    error = float((value_K.var(ddof=1) / K + noise**2) ** 0.5)
    return stats.Interval(float(value_K.mean()), float(scipy_stats.t.ppf(0.975, K - 1)) * error, K)


def error(data: pd.DataFrame) -> stats.Interval:
    """Mean squared distance of a group's estimate from the tier's exact change, over the variance that it claims.

    A group is a share of the tier's problems, so its squared distance is that of a group of new problems times 1 -
    share; tiers with a single group are left out. The unit of the interval is the group; its replicates and arms are
    averaged first.
    """
    at = ["step", "arm", "tier"]
    data = data[data.groupby(at)["group"].transform("nunique") > 1]
    weighed = data.assign(product=data["exact"] * data["prompts"])
    sums = weighed.groupby([*at, "replicate"])[["product", "prompts"]].transform("sum")
    share = data["prompts"] / sums["prompts"]
    squares = data.assign(
        square=(data["change"] - sums["product"] / sums["prompts"]) ** 2 / (1 - share), claimed=data["error"] ** 2
    )
    unit = squares.groupby(["step", "tier", "group"])[["square", "claimed"]].mean()
    ratio, scale = float(unit["square"].mean() / unit["claimed"].mean()), float(unit["claimed"].mean())
    residual = ((unit["square"] - ratio * unit["claimed"]) / scale).to_numpy()
    return stats.Interval(ratio, stats.t_interval(residual).half_width, len(unit))


NUMBERS = {"bias": bias, "error": error}


def verdict(one: Hypothesis, found: stats.Interval) -> str:
    """The verdict on a hypothesis, from the interval of its number."""
    if one.low < found.low and found.high < one.high:
        return "supported"
    return "contradicted" if found.high < one.low or found.low > one.high else "open"


def read(file: Path) -> pd.DataFrame:
    """The rows of a file; tier is empty for mastered prompts."""
    return pd.read_csv(file, keep_default_na=False, na_values=["nan"])


def measured(definition: Definition, model: str) -> pd.DataFrame:
    """The rows of one model; its trunk run is trained if it is missing."""
    trunk = definition.trunk(model)
    start.train(forecast(branching.plan("branch-estimator", [trunk], "python -m mcpo_study.analysis.branch_estimator")))
    folder, found = run_dir(trunk.spec.run_id), list[dict[str, Any]]()
    attempt = Attempt(folder / "branch-estimator", trunk.spec, 0)

    def measure(point: Point) -> None:
        for cohort in point.cohorts:
            found.extend(rows(point, cohort, definition))

    for step in trunk.at:
        engine.visit(trunk, attempt, folder, step, measure)
    attempt.end("done")
    return pd.DataFrame(found).assign(model=model, run_id=trunk.spec.run_id)


def main(file: str = str(FILE), *models: str) -> None:
    definition = convert(Definition, read_yaml(Path(file)), file)
    written = ROWS.with_name(f"{Path(file).stem}.csv")
    if unknown := set(models) - set(definition.models):
        raise SystemExit(f"{file} has no model {', '.join(sorted(unknown))}; it has {', '.join(definition.models)}")
    parts = [measured(definition, model) for model in models or definition.models]
    if written.exists():
        kept = read(written)
        parts = [kept[~kept["model"].isin([part["model"].iloc[0] for part in parts])], *parts]
    data = pd.concat(parts, ignore_index=True)
    data.to_csv(written, index=False, float_format="%.6g", lineterminator="\n", na_rep="nan")
    for one in definition.hypotheses:
        own = data[(data["model"] == one.model) & (data["cohort"] == one.cohort)]
        if len(own):
            found = NUMBERS[one.number](own)
            where = f"{one.model}, {one.cohort}, {one.number}"
            sys.stdout.write(
                f"{one.id} {where}: {found.mean:.5f} [{found.low:.5f}, {found.high:.5f}]: {verdict(one, found)}\n"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
