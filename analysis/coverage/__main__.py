"""`make coverage`: coverage of intervals and power of tests of `mcpo compare`, in simulated logs with a known truth.

Writes `results/coverage.csv` of the study `coverage`, one row per design, and the table of its page from it. An answer
is correct with probability expit(problem + arm x problem + run + run x problem), all four normal; arms are equal on
average. With one training run an interval is about these two models alone, so runs have no effect there.
"""

import itertools
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy import optimize, special

from mcpo_cli.statistics import crossed, stats
from mcpo_cli.statistics.crossed import Ints
from mcpo_cli.statistics.power import look_level, noncentrality
from mcpo_cli.statistics.stats import Floats, Student

from .. import EXPERIMENTS

STUDY = EXPERIMENTS / "coverage"
RECORDS, PAGE = STUDY / "results" / "coverage.csv", STUDY / "coverage.md"
BEGIN = "<!-- the table: `make coverage` writes it -->"
SEED = 20261124
TRIALS = 2000
"""Number of simulated logs per design: a coverage of .95 has a standard error of .005."""
PROBLEM, OWN = 1.5, 0.4
"""Standard deviations, in logits, of problems and of the effect of an arm on each."""
WRONG = np.array([0.5, 0.2, 0.1, 0.1, 0.1])
"""Probabilities of the distinct incorrect answers, for maj@k; the last is that of no answer."""


@dataclass(frozen=True)
class Design:
    """Two arms of logs."""

    seeds: int
    problems: tuple[int, ...]
    """Number of problems of each benchmark."""
    samples: int
    run: float = 0.3
    """Standard deviation of runs, and of run x problem, in logits."""
    level: float = 0.0
    """Mean of problems, in logits: 0 is an accuracy of .5."""
    metric: str = "pass@1"
    same_seeds: bool = True
    missing: float = 0.0
    """Share of cells without samples."""
    uneven: bool = False
    """Cells have 1 to `samples` samples."""

    @property
    def name(self) -> str:
        """The design's name in the table."""
        more = [
            "" if self.same_seeds else "seeds not paired",
            f"{self.missing:.0%} of cells missing" if self.missing else "",
            "1 to n samples" if self.uneven else "",
            f"accuracy {self.truth:.2f}" if self.level else "",
            "runs alike" if not self.run and self.seeds > 1 else "",
        ]
        problems = " + ".join(map(str, self.problems))
        return f"{self.metric}, {self.seeds} x {problems} x {self.samples}" + "".join(f", {one}" for one in more if one)

    @property
    def truth(self) -> float:
        """True pass@1 of both arms."""
        return _mean_of_expit(self.level, math.sqrt(PROBLEM**2 + OWN**2 + 2 * self.run**2), 1)


DESIGNS = (
    *(
        Design(seeds, (problems,), samples)
        for seeds, problems, samples in itertools.product((3, 5, 10, 30), (20, 200), (1, 8))
    ),
    *(Design(seeds, (1000,), 1) for seeds in (3, 10)),
    Design(3, (30,), 64),
    Design(10, (100,), 64),
    *(Design(seeds, (200,), 4, same_seeds=False) for seeds in (3, 5, 10)),
    Design(5, (200,), 4, missing=0.15),
    Design(10, (60,), 4, missing=0.15, same_seeds=False),
    Design(5, (200,), 16, uneven=True),
    *(Design(seeds, (200,), 4, run=0.0) for seeds in (3, 10)),
    *(Design(5, (200,), 4, level=level) for level in (-3.0, 3.0)),
    *(Design(1, (problems,), samples, run=0.0) for problems, samples in ((20, 1), (30, 8), (200, 1), (1000, 1))),
    Design(1, (200,), 1, run=0.0, level=3.0),
    Design(5, (40, 200), 4),
    Design(3, (30, 30, 100), 8),
    *(
        Design(seeds, (100,), 8, run=run, metric=metric)
        for seeds, run in ((1, 0.0), (5, 0.3))
        for metric in ("pass@4", "maj@4")
    ),
    Design(3, (30,), 16, metric="pass@8"),
    Design(3, (200,), 16, metric="maj@8"),
    # Designs for which `mcpo compare` names a limit: few problems, or few that differ.
    Design(3, (10,), 8),
    Design(1, (10,), 1, run=0.0),
    Design(1, (30,), 8, run=0.0, level=4.0),
    *(Design(1, (problems,), 1, run=0.0, level=5.0) for problems in (30, 100)),
)
LOOKS = (2, 3, 5)


def drawn(design: Design, random: np.random.Generator, shift: float = 0.0) -> Iterator[Floats]:
    """The metric of each arm by seed and problem; NaN where a cell is missing. shift: of the first arm, in logits."""
    problems = sum(design.problems)
    problem_P = random.normal(design.level, PROBLEM, problems)
    shape = design.seeds, problems
    # Every problem and every seed keep a cell that both arms have.
    kept = np.zeros(shape, bool)
    kept[random.integers(design.seeds, size=problems), np.arange(problems)] = True
    kept[:, random.integers(problems, size=2)] = True
    for arm in range(2):
        own_P = random.normal(0, OWN, problems)
        run_SP = random.normal(0, design.run, (design.seeds, 1)) + random.normal(0, design.run, shape)
        chance_SP = special.expit(problem_P + own_P + run_SP + (shift if arm == 0 else 0.0))
        count_SP = random.integers(1, design.samples + 1, shape) if design.uneven else np.full(shape, design.samples)
        value_SP = _metric(design.metric, count_SP, chance_SP, random)
        yield np.where((random.random(shape) < design.missing) & ~kept, math.nan, value_SP)


def _metric(name: str, count_SP: Ints, chance_SP: Floats, random: np.random.Generator) -> Floats:
    kind, k = name.split("@")
    right_SP = random.binomial(count_SP, chance_SP)
    if name == "pass@1":
        return np.asarray(right_SP / count_SP)
    if kind == "pass":
        return np.asarray(stats.pass_at_k(count_SP, right_SP, int(k)))
    wrong_SPA = random.multinomial(count_SP - right_SP, WRONG)
    cells = zip(right_SP.ravel(), np.sort(wrong_SPA[..., :-1]).reshape(-1, 4), wrong_SPA[..., -1].ravel(), strict=True)
    found = [_majority(int(right), tuple(map(int, wrong)), int(blank), int(k)) for right, wrong, blank in cells]
    return np.array(found).reshape(right_SP.shape)


@cache
def _majority(right: int, wrong: tuple[int, ...], blank: int, k: int) -> float:
    return stats.maj_at_k(right, wrong, blank, k)


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


def simulate(design: Design, trials: int) -> Found:
    """Draw a design's logs `trials` times, with no difference and with one."""
    random = np.random.default_rng([SEED, zlib.crc32(design.name.encode())])
    strata_P = np.repeat(np.arange(len(design.problems)), design.problems)
    tests, covered_mean = [], []
    for _ in range(trials):
        one, other = drawn(design, random)
        tests.append(crossed.difference(one, other, strata_P, same_seeds=design.same_seeds).test)
        if design.metric == "pass@1":
            covered_mean.append(_covers_mean(one, strata_P, design))
    # One arm is better by the difference that the design finds with a chance of .8. Its error depends on the accuracy,
    # so a pilot run with about that difference measures it.
    shift, _ = _shifted(design, _reach(tests))
    shift, truth = _shifted(design, _reach(_tests(design, random, strata_P, shift, max(trials // 4, 100))))
    better = _tests(design, random, strata_P, shift, trials)
    intervals, shifted = ([test.interval() for test in those] for those in (tests, better))
    return Found(
        float(np.mean([one.low <= 0 <= one.high for one in intervals])),
        float(np.mean([one.low <= truth <= one.high for one in shifted])),
        float(np.mean([2 * min(test.p_above(), test.p_below()) <= 0.05 for test in better])),
        float(np.mean(covered_mean)) if covered_mean else math.nan,
        float(np.mean([2 * one.half_width for one in intervals])),
    )


def _tests(design: Design, random: np.random.Generator, strata_P: Ints, shift: float, trials: int) -> list[Student]:
    return [
        crossed.difference(one, other, strata_P, same_seeds=design.same_seeds).test
        for one, other in (drawn(design, random, shift) for _ in range(trials))
    ]


def _reach(tests: Sequence[Student]) -> float:
    """The difference that a design finds with a chance of .8, as a multiple of its standard error."""
    error = math.sqrt(np.mean([test.error**2 for test in tests]))
    return error * noncentrality(float(np.median([test.df for test in tests])))


def _covers_mean(score_SP: Floats, strata_P: Ints, design: Design) -> bool:
    found = crossed.mean(score_SP, strata_P)
    test = found.test
    low, high = stats.share_interval(test.mean, test.error**2, found.problems * design.seeds, test.df)
    return low <= design.truth <= high


def _shifted(design: Design, effect: float) -> tuple[float, float]:
    """The shift in logits that raises the metric by about `effect`, and the exact rise."""
    base = _truth(design, 0.0)
    most = min(effect, 0.95 * (1 - base))
    shift = float(optimize.brentq(lambda value: _truth(design, value) - base - most, 0.0, 20.0, xtol=1e-3))
    return shift, _truth(design, shift) - base


def _truth(design: Design, shift: float) -> float:
    """The true metric of an arm: its mean over problems and runs with infinitely many samples."""
    kind, k = design.metric.split("@")
    spread = math.sqrt(PROBLEM**2 + OWN**2 + 2 * design.run**2)
    if kind == "pass":
        return _mean_of_expit(design.level + shift, spread, int(k))
    points, weights = _points(design.level + shift, spread)
    return float(weights @ np.array([_true_majority(round(chance, 4), int(k)) for chance in special.expit(points)]))


def _mean_of_expit(level: float, spread: float, k: int) -> float:
    """Mean of 1 - (1 - p)^k where the logit of p is normal."""
    points, weights = _points(level, spread)
    return float(weights @ (1 - special.expit(-points) ** k))


@cache
def _points(level: float, spread: float) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    return level + spread * nodes, weights / weights.sum()


@cache
def _true_majority(chance: float, k: int) -> float:
    """maj@k of one problem: the sum over all ways in which k samples can be split among the answers."""
    chances = np.array([chance, *((1 - chance) * WRONG)])
    total = 0.0
    for counts in _counts(k, len(chances)):
        right, blank, others = counts[0], counts[-1], counts[1:-1]
        log = special.gammaln(k + 1) - special.gammaln(np.array(counts) + 1).sum()
        log += special.xlogy(np.array(counts), chances).sum()
        total += math.exp(log) * _majority(right, tuple(sorted(others)), blank, k)
    return total


def _counts(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _counts(total - first, parts - 1):
            yield (first, *rest)


def looks(looks: int, trials: int) -> float:
    """Type I error over all declared looks at one growing comparison: each look has more problems for both models."""
    random, found = np.random.default_rng([SEED, looks]), 0
    design = Design(1, (40 * looks,), 4, run=0.0)
    for _ in range(trials):
        one, other = drawn(design, random)
        for look in range(1, looks + 1):
            seen = slice(0, 40 * look)
            test = crossed.difference(one[:, seen], other[:, seen], same_seeds=True).test
            if 2 * min(test.p_above(), test.p_below()) <= look_level(look, looks):
                found += 1
                break
    return found / trials


def page(records: pd.DataFrame) -> str:
    """The table of the page."""
    lines = [
        "| metric, seeds x problems x samples | no difference | a difference | power | mean |",
        "|---|---|---|---|---|",
    ]
    for row in records.to_dict("records"):
        shown = ["" if math.isnan(row[name]) else f"{row[name]:.1%}" for name in ("difference", "shifted", "mean")]
        power = "" if math.isnan(row["power"]) else f"{row['power']:.2f}"
        lines.append(f"| {row['name']} | {shown[0]} | {shown[1]} | {power} | {shown[2]} |")
    return "\n".join(lines)


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    rows: list[dict[str, object]] = []
    for design in DESIGNS:
        rows.append({"name": design.name, "trials": trials, **asdict(simulate(design, trials))})
        sys.stderr.write(f"{rows[-1]}\n")
    rows += [
        {
            "name": f"all of {number} looks, 1 x 40 more each x 4",
            "trials": trials,
            "difference": 1 - looks(number, trials),
        }
        for number in LOOKS
    ]
    pd.DataFrame(rows).to_csv(RECORDS, index=False, float_format="%.4f", lineterminator="\n")
    head = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(f"{head}{BEGIN}\n{page(pd.read_csv(RECORDS))}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
