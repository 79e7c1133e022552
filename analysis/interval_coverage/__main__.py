"""`make interval-coverage`: coverage of intervals, power of tests of `mcpo compare`, in simulated logs of known truth.

Writes `results/coverage.csv` of the study `interval-coverage`, one row per design, and the table of its page from it.
Each row is written as soon as it is known, and a design whose row has TRIALS trials is not simulated again, so that
the command can be stopped and continued.
"""

import math
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache, partial

import numpy as np
import pandas as pd
from scipy import optimize, special

from mcpo_cli.statistics import crossed, difference_tests, stats
from mcpo_cli.statistics.power import ALPHA, look_level, noncentrality
from mcpo_cli.statistics.stats import Floats, Ints, Student

from .. import EXPERIMENTS
from .designs import (
    DESIGNS,
    FAMILIES,
    LOOKS,
    MARGINS,
    OWN,
    PROBLEM,
    WRONG,
    Design,
    drawn,
    majority,
    mean_of_expit,
    points,
)  # fmt: skip

STUDY = EXPERIMENTS / "interval-coverage"
RECORDS, PAGE = STUDY / "results" / "coverage.csv", STUDY / "coverage.md"
BEGIN = "<!-- the table: `make interval-coverage` writes it -->"
SEED = 20261124
TRIALS = 4000
"""Number of simulated logs per design: a coverage of .95 has a standard error of .0035."""
TAILS = {"tail_1": 0.05 / 6, "tail_2": 0.001}
"""Levels at which Holm's method looks in a family of 6 and of 50: columns of the share of p-values below them."""


@dataclass(frozen=True)
class Found:
    """Coverage of a design's intervals, and power of its test."""

    difference: float
    """Share of trials whose interval of the difference contains the true one, 0: the rest is the type I error."""
    shifted: float
    """As `difference`, where one arm is better by about the difference that the design detects."""
    power: float
    """Share of trials with that difference in which the test finds one; nominally .8."""
    mean: float
    """Share of trials whose interval of an arm's mean contains the true mean; NaN for metrics other than pass@1."""
    width: float
    """Mean width of the interval of the difference."""
    tail_1: float
    """Share of trials without a difference whose p-value is at most .0083; nominally as much."""
    tail_2: float
    """The same at .001."""


def simulate(design: Design, trials: int) -> Found:
    """Draw a design's logs `trials` times, with no difference and with one."""
    random = np.random.default_rng([SEED, zlib.crc32(design.name.encode())])
    strata_P = np.repeat(np.arange(len(design.problems)), design.problems)
    tests, covered_mean = [], []
    for _ in range(trials):
        first, second = drawn(design, random)
        tests.append(crossed.difference(first, second, strata_P, same_seeds=design.same_seeds).test)
        if design.metric == "pass@1" and not design.collapse:
            covered_mean.append(_covers_mean(first, strata_P, design))
    # One arm is better by the difference that the design finds with a chance of .8. Its error depends on the accuracy,
    # so a pilot run with about that difference measures it.
    shift, _ = _shifted(design, _reach(tests))
    shift, truth = _shifted(design, _reach(_tests(design, random, strata_P, shift, max(trials // 4, 100))))
    shifted_tests = _tests(design, random, strata_P, shift, trials)
    intervals, shifted = ([test.interval() for test in group] for group in (tests, shifted_tests))
    p_N = np.array([_p(test) for test in tests])
    return Found(
        float(np.mean([interval.low <= 0 <= interval.high for interval in intervals])),
        float(np.mean([interval.low <= truth <= interval.high for interval in shifted])),
        float(np.mean([_p(test) <= ALPHA for test in shifted_tests])),
        float(np.mean(covered_mean)) if covered_mean else math.nan,
        float(np.mean([2 * interval.half_width for interval in intervals])),
        *(float(np.mean(p_N <= level)) for level in TAILS.values()),
    )


def _p(test: Student) -> float:
    return 2 * min(test.p_above(), test.p_below())


def _tests(design: Design, random: np.random.Generator, strata_P: Ints, shift: float, trials: int) -> list[Student]:
    return [
        crossed.difference(first, second, strata_P, same_seeds=design.same_seeds).test
        for first, second in (drawn(design, random, shift) for _ in range(trials))
    ]


def _reach(tests: Sequence[Student]) -> float:
    """The difference that a design finds with a chance of .8, as a multiple of its standard error."""
    error = math.sqrt(np.mean([test.error**2 for test in tests]))
    return error * noncentrality(float(np.median([test.df for test in tests])))


def _covers_mean(score_SP: Floats, strata_P: Ints, design: Design) -> bool:
    estimate = crossed.mean(score_SP, strata_P)
    test = estimate.test
    low, high = stats.share_interval(test.mean, test.error**2, estimate.problems * design.seeds, test.df)
    return low <= design.truth <= high


def _shifted(design: Design, effect: float) -> tuple[float, float]:
    """The shift in logits that raises the metric by about `effect`, and the exact rise."""
    base = _truth(design, 0.0)
    rise = min(effect, 0.95 * (1 - base))
    shift = float(optimize.brentq(lambda value: _truth(design, value) - base - rise, 0.0, 20.0, xtol=1e-3))
    return shift, _truth(design, shift) - base


def _truth(design: Design, shift: float) -> float:
    """The true metric of an arm: its mean over problems and runs with infinitely many samples."""
    kind, k = design.metric.split("@")
    spread = math.sqrt(PROBLEM**2 + OWN**2 + 2 * design.run**2)
    if kind == "pass":
        return mean_of_expit(design.level + shift, spread, int(k))
    node_K, weight_K = points(design.level + shift, spread)
    chance_K = special.expit(node_K)
    return float(weight_K @ np.array([_true_majority(round(chance, 4), int(k)) for chance in chance_K]))


@cache
def _true_majority(chance: float, k: int) -> float:
    """maj@k of one problem: the sum over all ways in which k samples can be split among the answers."""
    chances = np.array([chance, *((1 - chance) * WRONG)])
    total = 0.0
    for counts in _counts(k, len(chances)):
        right, blank, others = counts[0], counts[-1], counts[1:-1]
        log = special.gammaln(k + 1) - special.gammaln(np.array(counts) + 1).sum()
        log += special.xlogy(np.array(counts), chances).sum()
        total += math.exp(log) * majority(right, tuple(sorted(others)), blank, k)
    return total


def _counts(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for tail in _counts(total - first, parts - 1):
            yield (first, *tail)


def looks(looks: int, trials: int) -> dict[str, float]:
    """Trials without an error over all declared looks at one growing comparison: each look has more problems."""
    random, errors = np.random.default_rng([SEED, looks]), 0
    design = Design(1, (40 * looks,), 4, run=0.0)
    for _ in range(trials):
        first, second = drawn(design, random)
        for look in range(1, looks + 1):
            part = slice(0, 40 * look)
            test = crossed.difference(first[:, part], second[:, part], same_seeds=True).test
            if _p(test) <= look_level(look, looks):
                errors += 1
                break
    return {"difference": 1 - errors / trials}


def family(arms: int, benchmarks: int, seeds: int, trials: int) -> dict[str, float]:
    """Share of trials in which no difference of a family of equal arms gets a verdict of `better` or `worse`."""
    random, design = np.random.default_rng([SEED, arms, benchmarks, seeds]), Design(seeds, (60,), 8)
    errors = 0
    for _ in range(trials):
        tests = _tests(design, random, np.zeros(60, int), 0.0, arms * benchmarks)
        errors += (
            min(
                adjusted.p
                for adjusted in difference_tests.adjusted([difference_tests.p_values(test) for test in tests])
            )
            <= ALPHA
        )
    return {"difference": 1 - errors / trials}


def at_margin(design: Design, trials: int) -> dict[str, float]:
    """Shares of trials with `equivalent` and with `not worse`, where an arm is worse by exactly the margin."""
    random, strata_P = np.random.default_rng([SEED, *design.name.encode()]), np.zeros(design.problems[0], int)
    shift, margin = _shifted(design, 0.05)
    tests = _tests(design, random, strata_P, shift, trials)
    p_N = np.array([astuple(difference_tests.p_values(replace(test, mean=-test.mean), margin)) for test in tests])
    return {"equivalent": float(np.mean(p_N[:, 2] <= ALPHA)), "not_worse": float(np.mean(p_N[:, 1] <= ALPHA))}


def page(records: pd.DataFrame) -> str:
    """The table of the page."""
    lines = [
        "| metric, seeds x problems x samples | no difference | p below .0083 | p below .001 | a difference | power "
        "| mean |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in records.to_dict("records"):
        names = ("difference", *TAILS, "shifted", "power", "mean")
        digits = {"power": ".2f", "tail_1": ".2%", "tail_2": ".2%"}
        cells = ["" if math.isnan(row[name]) else f"{row[name]:{digits.get(name, '.1%')}}" for name in names]
        if math.isnan(row["equivalent"]):
            lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    lines += ["", "| where the truth is the margin | equivalent | not worse |", "|---|---|---|"]
    for row in records[records["equivalent"].notna()].to_dict("records"):
        lines.append(f"| {row['name']} | {row['equivalent']:.1%} | {row['not_worse']:.1%} |")
    return "\n".join(lines)


def tasks() -> Mapping[str, Callable[[int], Mapping[str, float]]]:
    """What gives each row of the table from a number of trials, by its name."""
    return {
        **{design.name: partial(_simulated, design) for design in DESIGNS},
        **{f"all of {number} looks, 1 x 40 more each x 4": partial(looks, number) for number in LOOKS},
        **{
            f"all of {arms} arms x {benchmarks} benchmarks, {seeds} x 60 x 8": partial(family, arms, benchmarks, seeds)
            for arms, benchmarks, seeds in FAMILIES
        },
        **{f"worse by the margin, {design.name}": partial(at_margin, design) for design in MARGINS},
    }


def _simulated(design: Design, trials: int) -> dict[str, float]:
    return asdict(simulate(design, trials))


def main() -> None:
    """Simulate what is missing, new designs first; at most as many as the argument says."""
    records = pd.read_csv(RECORDS).set_index("name")
    new = [name for name in tasks() if name not in records.index]
    old = [name for name in records.index if records.loc[name, "trials"] != TRIALS]
    for name in [*new, *old][: int(sys.argv[1]) if len(sys.argv) > 1 else None]:
        for column, value in {"trials": TRIALS, **tasks()[name](TRIALS)}.items():
            records.loc[name, column] = value
        sys.stderr.write(f"{name}: {records.loc[name].dropna().to_dict()}\n")
        write(records)


def write(records: pd.DataFrame) -> None:
    """Write the rows in the order of `tasks`, and the page."""
    table = records.loc[[name for name in tasks() if name in records.index]].astype({"trials": int})
    table.to_csv(RECORDS, float_format="%.4f", lineterminator="\n")
    head = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(f"{head}{BEGIN}\n{page(pd.read_csv(RECORDS))}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
