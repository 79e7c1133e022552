"""Tests declared claims on runs: effect, interval and word of each test, and whether it is the word that was expected.

A test is one claim on one model and regime. It compares one number per seed with a reference by a two-sided Student's
t-test. A claim of every part (every benchmark, every third of training) is one intersection-union test: it holds only
if it holds for each part (Berger 1982, Technometrics 24, 295-300), and fails if one part contradicts it after
Bonferroni's correction. The word is that of `statistics/words.py` for the distance from the reference, by the claim's
rule: the nominal level, which agrees with the 95% interval next to it, or Holm's method over all tests together.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from mcpo_cli.config.claims import Claim
from mcpo_cli.measures.frames import Runs
from mcpo_cli.report.numbers import Numbers, of_run
from mcpo_cli.statistics import clusters, stats, words
from mcpo_cli.statistics.stats import Interval, Student
from mcpo_cli.statistics.words import PValues, Word

UNKNOWN = Interval(math.nan, math.nan, 0)
EXPECTED: Mapping[str, Word] = {"greater": "better", "less": "worse", "within": "equivalent"}
"""The word that a claim expects, by its relation: `better` is above the reference, `worse` below."""
Verdict = Literal["supported", "contradicted", "no difference", "unresolved", "not testable"]
TESTED: tuple[Verdict, ...] = ("supported", "contradicted", "no difference", "unresolved")
"""Verdicts of tests."""


@dataclass(frozen=True)
class ClaimResult:
    """Result of one test: one claim on the runs of one model in one regime."""

    claim: Claim
    model: str
    regime: str
    part: str = ""
    """The part (tier, third, ...) that is least in favour of the claim; empty for the whole run."""
    effect: Interval = UNKNOWN
    """Mean over seeds and its t-interval, of that part; NaN if there are no numbers."""
    direction: int = 0
    """1 if the number is rather above the reference than below, -1 otherwise, over all parts."""
    p: float = math.nan
    """Two-sided p-value; NaN if no test is possible."""
    p_equal: float = math.nan
    """p of two one-sided tests (Schuirmann 1987) of a distance from the reference below the margin; NaN without one."""
    parts: Mapping[str, Interval] = field(default_factory=dict)
    """The effect of every part."""
    why: str = ""
    """The reason why no test is possible."""
    p_holm: float = math.nan
    """p adjusted over all tests."""
    p_equal_holm: float = math.nan
    """p_equal adjusted over all tests."""
    bases: Interval = UNKNOWN
    """The effect with base policies as units, about new ones; unknown unless runs share base policies."""
    control: float = math.nan
    """Mean of the baseline's number, of that part; NaN for claims that are not about the difference of two arms."""

    @property
    def word(self) -> Word:
        """The word for the number's distance from the reference, by the claim's rule."""
        return self._adjusted if self.claim.decide == "holm" else self._word(self.p, self.p_equal)

    @property
    def _adjusted(self) -> Word:
        return self._word(self.p_holm, self.p_equal_holm)

    def _word(self, p: float, p_equal: float) -> Word:
        direction = words.word(self.direction, PValues(p))
        if self.claim.relation != "within" and direction != "undecided":
            return direction  # The claim is about the direction: that a difference is small does not take it back.
        return words.word(self.direction, PValues(p, p_equivalent=p_equal))

    @property
    def verdict(self) -> Verdict:
        """Whether the expected word came true. `no difference`: the number is equivalent to the reference instead."""
        if self.word == EXPECTED[self.claim.relation]:
            return "supported"
        if self.word == "not testable":
            return "not testable"
        if self.word == "undecided":
            return "unresolved"
        return "no difference" if self.word == "equivalent" else "contradicted"

    @property
    def vacuous(self) -> bool:
        """True if a difference is called small by a margin that is a third or more of the baseline's whole value."""
        return self.word == "equivalent" and self.claim.margin >= abs(self.control) / 3

    @property
    def holds(self) -> bool:
        """True if the verdict also holds for all tests together."""
        return self._adjusted == self.word and self.verdict in TESTED[:-1]


def outcomes(claims: Sequence[Claim], data: Mapping[str, Runs]) -> list[ClaimResult]:
    """Test every claim on every model of its suite, in order. data: the runs by suite."""
    return decided([test for claim in claims for test in _tests(claim, data[claim.suite])])


def decided(tests: Sequence[ClaimResult]) -> list[ClaimResult]:
    """The tests with p-values adjusted over the family. A test without p is not in the family."""
    adjusted = words.adjusted([PValues(test.p, p_equivalent=test.p_equal) for test in tests])
    return [
        replace(test, p_holm=one.p, p_equal_holm=one.p_equivalent) for test, one in zip(tests, adjusted, strict=True)
    ]


def _tests(claim: Claim, runs: Runs) -> Iterator[ClaimResult]:
    by_arm = {arm: _numbers(claim.statistic, runs, arm) for arm in claim.weights}
    for model, regime in dict.fromkeys((cell.spec.model.name, cell.spec.regime) for cell in runs.cells):
        pairs = [pair for pair in by_arm[claim.arm] if pair[:2] == (model, regime)]
        values: dict[str, list[float]] = {}
        bases: dict[str, list[int]] = {}
        levels: dict[str, list[float]] = {}
        for pair in pairs:
            numbers = {arm: found.get(pair, {}) for arm, found in by_arm.items()}
            for part in numbers[claim.arm]:
                if all(part in own for own in numbers.values()):
                    contrast = sum(weight * numbers[arm][part] for arm, weight in claim.weights.items())
                    values.setdefault(part, []).append(contrast)
                    bases.setdefault(part, []).append(pair[2])
                    if claim.baseline and not claim.beyond:
                        levels.setdefault(part, []).append(numbers[claim.baseline][part])
        found = outcome(claim, model, regime, values, _unmet(claim, runs, model, regime))
        if not math.isnan(found.p):
            found = replace(found, bases=_of_bases(values[found.part], bases[found.part]))
        if found.part in levels:
            found = replace(found, control=float(np.mean(levels[found.part])))
        yield found


def _of_bases(value_N: Sequence[float], base_N: Sequence[int]) -> Interval:
    """The mean with base policies as units, if runs share them and they are LEAST or more."""
    if not stats.LEAST <= len(set(base_N)) < len(base_N):
        return UNKNOWN
    return _interval(clusters.mean(value_N, np.ones(len(value_N)), base_N))


Pair = tuple[str, str, int, int]
"""Model, regime, base seed, seed: paired runs of different arms share these."""


def _numbers(statistic: str, runs: Runs, arm: str) -> dict[Pair, Numbers]:
    """The statistic of each run of one arm."""
    return {
        (spec.model.name, spec.regime, spec.seed_of_base, spec.seed): of_run(runs, cell, statistic)
        for cell in runs.cells
        for spec in (cell.spec,)
        if cell.arm == arm
    }


def _unmet(claim: Claim, runs: Runs, model: str, regime: str) -> str:
    """The reason why these runs do not meet the claim's precondition; empty if they do, or if it has none."""
    if not claim.requires:
        return ""
    found = _numbers(claim.requires.statistic, runs, claim.required_arm)
    values = [value for pair, numbers in found.items() if pair[:2] == (model, regime) for value in numbers.values()]
    needed = f"{claim.requires.statistic} of {claim.required_arm} must be above {claim.requires.above:g}"
    if not values:
        return f"{needed}, and has no records"
    mean = float(np.mean(values))
    return "" if mean > claim.requires.above else f"{needed}, and is {mean:.3g}"


def outcome(
    claim: Claim,
    model: str,
    regime: str,
    values: Mapping[str, Sequence[float]],
    unmet: str = "",
) -> ClaimResult:
    """One test, not yet adjusted for the others.

    p is twice the smaller of two one-sided p-values, one for the claim and one against it. For the claim, every part
    must be rejected, so its p-value is the largest of the parts'; against it, one part is enough, so its p-value is the
    smallest times their number. A claim of `within` needs both bounds rejected (two one-sided tests, Schuirmann 1987,
    doi 10.1007/BF01068419); its opposite needs one.

    Args:
        values: one number per run (or pair of runs), by part.
        unmet: why the claim's precondition does not occur, if so.
    """
    nan = sum(math.isnan(value) for numbers in values.values() for value in numbers)
    if nan:
        why = f"{nan} of {sum(map(len, values.values()))} values are NaN"
        return ClaimResult(claim, model, regime, why=why)
    found = {part: stats.student(numbers) for part, numbers in values.items()}
    parts = {part: _interval(mean) for part, mean in found.items()}
    fewest = min((mean.n for mean in found.values()), default=0)
    part = next(iter(parts), "")
    shown = ClaimResult(claim, model, regime, part, parts.get(part, UNKNOWN), parts=parts)
    few = f"{fewest} seed" + "s" * (fewest > 1) if fewest else "no such records"
    if why := claim.untested or (few if fewest < stats.LEAST else unmet):
        return replace(shown, why=why)
    sides = {part: _sides(claim, mean) for part, mean in found.items()}
    if any(math.isnan(p) for pair in sides.values() for p in pair):
        return replace(shown, why=stats.IDENTICAL)
    worst = max(sides, key=lambda part: sides[part])
    p_for, p_against = sides[worst][0], min(1.0, len(sides) * min(against for _, against in sides.values()))
    favours = p_for < p_against
    above = {"greater": favours, "less": not favours, "within": parts[worst].mean > claim.reference}[claim.relation]
    return replace(
        shown,
        part=worst,
        effect=parts[worst],
        direction=1 if above else -1,
        p=min(1.0, 2 * min(p_for, p_against)),
        # NaN, where one part's values are all equal, stays NaN.
        p_equal=float(np.max([_equal(claim, mean) for mean in found.values()])) if claim.margin else math.nan,
    )


def _interval(mean: Student) -> Interval:
    """The 95 % interval; none where identical values have no variance."""
    return mean.interval() if mean.error > stats.ROUNDING else Interval(mean.mean, math.nan, mean.n)


def _sides(claim: Claim, mean: Student) -> tuple[float, float]:
    """One-sided p-values for the claim and against it."""
    low, high = claim.reference - claim.margin, claim.reference + claim.margin
    if claim.relation == "within":
        return _equal(claim, mean), min(mean.p_below(low), mean.p_above(high))
    above, below = mean.p_above(claim.reference), mean.p_below(claim.reference)
    return (above, below) if claim.relation == "greater" else (below, above)


def _equal(claim: Claim, mean: Student) -> float:
    """p of two one-sided tests of a distance from the reference of at most the margin."""
    return max(mean.p_above(claim.reference - claim.margin), mean.p_below(claim.reference + claim.margin))
