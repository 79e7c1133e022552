"""Tests declared claims on runs: the number, its interval and its word, and whether the claim expected this word.

A test is one claim on one model and regime. It compares one number per seed with a reference by a two-sided Student's
t-test. A claim of every part (every benchmark, every third of training) is one intersection-union test: it holds only
if it holds for each part (Berger 1982, Technometrics 24, 295-300), and fails if one part contradicts it after
Bonferroni's correction. The word (`statistics/words.py`) describes the distance from the reference, by the claim's
rule: the nominal level, which agrees with the 95% interval next to it, or Holm's method over all tests together.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mcpo_cli.config.claims import Claim
from mcpo_cli.measures.frames import Runs
from mcpo_cli.report.numbers import of_run
from mcpo_cli.statistics import clusters, difference_tests, stats, words
from mcpo_cli.statistics.difference_tests import PValues
from mcpo_cli.statistics.stats import Interval, Student
from mcpo_cli.statistics.words import ClaimWord, Word

UNKNOWN = Interval(math.nan, math.nan, 0)


@dataclass(frozen=True)
class ClaimTest:
    """The test of one claim on the runs of one model in one regime."""

    claim: Claim
    model: str
    regime: str
    part: str = ""
    """The part (tier, third, ...) that is least in favour of the claim; empty for the whole run."""
    effect: Interval = UNKNOWN
    """Mean of that part over seeds, with its t-interval; NaN if there are no numbers."""
    direction: int = 0
    """1 if the number is rather above the reference than below, -1 otherwise, over all parts."""
    p_values: PValues = PValues()
    """Two-sided p of no distance from the reference, and p of a distance of the margin or more; NaN without a test."""
    parts: Mapping[str, Interval] = field(default_factory=dict)
    """The effect of every part."""
    why: str = ""
    """The reason why no test is possible."""
    adjusted: PValues = PValues()
    """`p_values` adjusted over all tests."""
    bases: Interval = UNKNOWN
    """The effect with base policies as units, about new base policies; unknown unless runs share base policies."""
    control: float = math.nan
    """Mean of the baseline's number in that part; NaN for claims that are not about the difference of two arms."""

    @property
    def word(self) -> Word:
        """The word for the number's distance from the reference, by the claim's rule."""
        return self._word(self.adjusted if self.claim.decide == "holm" else self.p_values)

    def _word(self, tests: PValues) -> Word:
        direction = difference_tests.word(self.direction, PValues(tests.p))
        if self.claim.relation != "within" and direction != "undecided":
            return direction  # The claim is about the direction: that a difference is small does not take it back.
        return difference_tests.word(self.direction, tests)

    @property
    def verdict(self) -> ClaimWord:
        """Whether the number has the expected word."""
        return words.claim_word(self.word, self.claim.expected)

    @property
    def holds(self) -> bool:
        """True if the verdict also holds for all tests together."""
        return self.verdict not in words.OPEN and self._word(self.adjusted) == self.word

    @property
    def vacuous(self) -> bool:
        """True if a difference is called small by a margin that is a third or more of the baseline's whole value."""
        return self.word == "equivalent" and self.claim.margin >= abs(self.control) / 3


def of_claims(claims: Sequence[Claim], data: Mapping[str, Runs]) -> list[ClaimTest]:
    """Test every claim on every model of its suite, in order. data: the runs by suite."""
    return as_family([test for claim in claims for test in _of_models(claim, data[claim.suite])])


def as_family(tests: Sequence[ClaimTest]) -> list[ClaimTest]:
    """The tests with p-values adjusted over the family. A test without p is not in the family."""
    adjusted = difference_tests.adjusted([test.p_values for test in tests])
    return [replace(test, adjusted=p_values) for test, p_values in zip(tests, adjusted, strict=True)]


def _of_models(claim: Claim, runs: Runs) -> Iterator[ClaimTest]:
    numbers = {
        (run.arm, spec.model.name, spec.regime, spec.seed_of_base, spec.seed): of_run(runs, run, claim.statistic)
        for run in runs.planned
        for spec in (run.spec,)
        if run.arm in claim.weights
    }
    for model, regime in dict.fromkeys((run.spec.model.name, run.spec.regime) for run in runs.planned):
        rows: dict[str, list[tuple[float, float, int]]] = {}  # by part: the contrast, the baseline's number, the base
        for pair in (key[1:] for key in numbers if key[:3] == (claim.arm, model, regime)):
            by_arm = {arm: numbers.get((arm, *pair), {}) for arm in claim.weights}
            for part in by_arm[claim.arm]:
                if all(part in arm_numbers for arm_numbers in by_arm.values()):
                    contrast = sum(weight * by_arm[arm][part] for arm, weight in claim.weights.items())
                    control = by_arm[claim.baseline][part] if claim.baseline and not claim.beyond else math.nan
                    rows.setdefault(part, []).append((contrast, control, pair[2]))
        values = {part: [contrast for contrast, *_ in part_rows] for part, part_rows in rows.items()}
        test = of_values(claim, model, regime, values, _unmet(claim, runs, model, regime))
        if test.part in rows:
            value_N, control_N, base_N = zip(*rows[test.part], strict=True)
            bases = UNKNOWN if math.isnan(test.p_values.p) else _of_bases(value_N, base_N)
            test = replace(test, bases=bases, control=float(np.mean(control_N)))
        yield test


def _of_bases(value_N: Sequence[float], base_N: Sequence[int]) -> Interval:
    """The mean with base policies as units, if runs share them and they are LEAST or more."""
    if not stats.LEAST <= len(set(base_N)) < len(base_N):
        return UNKNOWN
    return _interval(clusters.mean(value_N, np.ones(len(value_N)), base_N))


def _unmet(claim: Claim, runs: Runs, model: str, regime: str) -> str:
    """The reason why these runs do not meet the claim's precondition; empty if they do, or if it has none."""
    if not claim.requires:
        return ""
    setting = (claim.required_arm, model, regime)
    planned_runs = [run for run in runs.planned if (run.arm, run.spec.model.name, run.spec.regime) == setting]
    values = [value for run in planned_runs for value in of_run(runs, run, claim.requires.statistic).values()]
    requirement = f"{claim.requires.statistic} of {claim.required_arm} must be above {claim.requires.above:g}"
    if not values:
        return f"{requirement}, and has no records"
    mean = float(np.mean(values))
    return "" if mean > claim.requires.above else f"{requirement}, and is {mean:.3g}"


def of_values(
    claim: Claim, model: str, regime: str, values: Mapping[str, Sequence[float]], unmet: str = ""
) -> ClaimTest:
    """One test, not yet adjusted for the others.

    p is twice the smaller of two one-sided p-values, one for the claim and one against it. For the claim, every part
    must be rejected, so the p-value is the parts' largest; against it, one part is enough, so the p-value is the parts'
    smallest times the number of parts. A claim of `within` needs both bounds rejected (two one-sided tests, Schuirmann
    1987, doi 10.1007/BF01068419); its opposite needs one.

    Args:
        values: one number per run (or pair of runs), by part.
        unmet: the reason why the claim's precondition is not met; empty if it is met.
    """
    is_nan = [math.isnan(value) for numbers in values.values() for value in numbers]
    if any(is_nan):
        return ClaimTest(claim, model, regime, why=f"{sum(is_nan)} of {len(is_nan)} values are NaN")
    means = {part: stats.student(numbers) for part, numbers in values.items()}
    parts = {part: _interval(mean) for part, mean in means.items()}
    count = min((mean.n for mean in means.values()), default=0)
    part = next(iter(parts), "")
    test = ClaimTest(claim, model, regime, part, parts.get(part, UNKNOWN), parts=parts)
    shortage = f"{count} seed" + "s" * (count > 1) if count else "no such records"
    if reason := claim.untested or (shortage if count < stats.LEAST else unmet):
        return replace(test, why=reason)
    sides = {part: _sides(claim, mean) for part, mean in means.items()}
    if any(math.isnan(p) for pair in sides.values() for p in pair):
        return replace(test, why=stats.IDENTICAL)
    worst = max(sides, key=lambda part: sides[part])
    p_for, p_against = sides[worst][0], min(1.0, len(sides) * min(against for _, against in sides.values()))
    favours = p_for < p_against
    above = {"greater": favours, "less": not favours, "within": parts[worst].mean > claim.reference}[claim.relation]
    # NaN, where one part's values are all equal, stays NaN.
    p_equivalent = float(np.max([_p_equivalent(claim, mean) for mean in means.values()])) if claim.margin else math.nan
    p_values = PValues(min(1.0, 2 * min(p_for, p_against)), p_equivalent=p_equivalent)
    return replace(test, part=worst, effect=parts[worst], direction=1 if above else -1, p_values=p_values)


def _interval(mean: Student) -> Interval:
    """The 95 % interval; none where identical values have no variance."""
    return mean.interval() if mean.error > stats.ROUNDING else Interval(mean.mean, math.nan, mean.n)


def _sides(claim: Claim, mean: Student) -> tuple[float, float]:
    """One-sided p-values for the claim and against it."""
    p_above, p_below = mean.p_above(claim.reference), mean.p_below(claim.reference)
    p_outside = min(mean.p_below(claim.reference - claim.margin), mean.p_above(claim.reference + claim.margin))
    pair_within = _p_equivalent(claim, mean), p_outside
    return {"greater": (p_above, p_below), "less": (p_below, p_above), "within": pair_within}[claim.relation]


def _p_equivalent(claim: Claim, mean: Student) -> float:
    """p of two one-sided tests of a distance from the reference of at most the margin."""
    return max(mean.p_above(claim.reference - claim.margin), mean.p_below(claim.reference + claim.margin))
