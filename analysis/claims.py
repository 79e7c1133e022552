"""Tests the claims of the paper (`experiments/claims.yaml`) on runs: effect, interval and verdict of each test.

A test is one claim on one model and regime. It compares one number per seed with a reference by a two-sided Student's
t-test. A claim of every part (every benchmark, every third of training) is one intersection-union test: it holds only
if it holds for each part (Berger 1982, Technometrics 24, 295-300), and fails if one part contradicts it after
Bonferroni's correction. Verdicts use the nominal level, so that they agree with the 95% interval next to them; each
also says whether it holds for all tests together (Holm's method).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mcpo_cli.analysis import map_measures, measures, method_measures
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import WHOLE, Numbers, Statistic
from mcpo_cli.config import json_schema, load, plan
from mcpo_cli.config.yaml_files import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, closest, nearest
from mcpo_cli.statistics import power, stats
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import Interval

PATH = load.EXPERIMENTS / "claims.yaml"
OF_METHODS = load.EXPERIMENTS / "method-claims.yaml"
"""Claims of other papers about the methods that the suites `methods-*` compare."""
STATISTICS: Mapping[str, Statistic] = {
    **measures.STATISTICS,
    **method_measures.STATISTICS,
    **map_measures.STATISTICS,
}
Verdict = Literal["supported", "contradicted", "unresolved", "not testable", "by construction"]
VERDICTS: tuple[Verdict, ...] = ("supported", "contradicted", "unresolved", "not testable", "by construction")


@dataclass(frozen=True)
class Claim:
    """An entry of `claims.yaml`."""

    id: str
    """Its name in tables; no other claim has it."""
    claim: str
    """The claim in a sentence."""
    suite: str
    """The runs."""
    statistic: str
    """One number per run, or one per run and part (`analysis/measures.py`)."""
    arm: str
    """The arm tested."""
    relation: Literal["greater", "less", "within"]
    """What the number is claimed to be: greater or less than `reference`, or within `margin` of it."""
    where: str = ""
    """Place in the paper."""
    quote: str = ""
    """The paper's words."""
    baseline: str = ""
    """The arm whose number at the same seed is subtracted."""
    beyond: tuple[str, ...] = ()
    """Two arms, whose difference at the same seed is subtracted from that of `arm` and `baseline`: an interaction."""
    along: str = ""
    """A statistic of the arm subtracted, or else of `arm`: the claim is about how the number and it go together, over
    the points of a design, which is Spearman's rank correlation."""
    reference: float = 0.0
    """The number that it is compared with."""
    margin: float = 0.0
    """The distance from `reference` within which it is claimed to lie."""
    beside: str = ""
    """A statistic of `arm` shown with the result."""
    reads: str = ""
    """How the claim is interpreted where the paper's words leave it open."""
    outside: Literal["", "by construction", "not testable"] = ""
    """The verdict of a claim that these runs cannot test; its number is shown without one."""
    because: str = ""
    """Why they cannot."""

    @property
    def weights(self) -> Mapping[str, int]:
        """The arms of the tested contrast and what each counts."""
        plus, minus = [self.arm, *self.beyond[1:]], [self.baseline, *self.beyond[:1]]
        return dict.fromkeys(plus, 1) | {arm: -1 for arm in minus if arm}

    @property
    def tested(self) -> str:
        """The test as a formula: `pass@1: MCPO - DAPO > 0`."""
        arms = f"{self.arm} - {self.baseline}" if self.baseline else self.arm
        if self.beyond:
            arms = f"({arms}) - ({' - '.join(self.beyond)})"
        if self.along:
            arms = f"rank correlation of {arms} with {self.along}"
        sign = {"greater": ">", "less": "<", "within": "="}[self.relation]
        margin = f" ± {self.margin:g}" if self.relation == "within" else ""
        return f"{self.statistic}: {arms} {sign} {self.reference:g}{margin}"


@dataclass(frozen=True)
class Outcome:
    """Result of one test: one claim on the runs of one model in one regime."""

    claim: Claim
    model: str
    regime: str
    part: str
    """The part (tier, third, ...) that is least in favour of the claim; empty for the whole run."""
    effect: Interval
    """Mean over seeds and its t-interval, of that part; NaN if there are no numbers."""
    sd: float
    """Standard deviation over the seeds, of that part."""
    favours: bool
    """Whether the effect lies on the claim's side, in every part."""
    p: float
    """Two-sided p-value; NaN if no test is possible."""
    parts: Mapping[str, Interval] = field(default_factory=dict)
    """The effect of every part."""
    why: str = ""
    """Why no test is possible."""
    beside: float = math.nan
    """Mean of the claim's companion statistic `beside`; NaN if it has none."""
    p_holm: float = math.nan
    """p adjusted over all tests."""
    verdict: Verdict = "not testable"

    @property
    def holds(self) -> bool:
        """Whether the verdict also holds for all tests together."""
        return self.p_holm <= ALPHA

    @property
    def detectable(self) -> tuple[float, float]:
        """Distance from the reference (or its margin) that as many seeds detect with `power.POWER`; NaN if unknown.

        It does not depend on the effect seen, but on the standard deviation, which few seeds know badly: the distances
        belong to both ends of `power.sd_bounds`.
        """
        if self.effect.n < stats.LEAST or not self.sd > 0:
            return math.nan, math.nan
        low, high = power.sd_bounds(self.sd, self.effect.n)
        found = [power.detectable_effect(sd, self.effect.n) for sd in (low, high)]
        return found[0], found[1]


def read(path: Path = PATH) -> list[Claim]:
    """Read and check the claims.

    Raises:
        ConfigError: a key, suite, arm or statistic is unknown, a key is missing, or an id is used twice.
    """
    claims: list[Claim] = []
    entries = read_yaml(path).get("claims")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: claims must be a list of claims", fix=f"edit {path}")
    for number, entry in enumerate(entries, start=1):
        try:
            claim = _claim(entry)
            if claim.id in {one.id for one in claims}:
                raise ConfigError("the id is used twice")
        except ConfigError as error:
            where = f"{path.name}, claim {number} ({entry.get('id', 'without id')})"
            raise ConfigError(f"{where}: {error.message}", fix=error.fix or f"edit {path}") from error
        claims.append(claim)
    return claims


def schema() -> dict[str, Any]:
    """The JSON schema of a file of claims, for editors."""
    one, statistics = json_schema.of(Claim), sorted(STATISTICS)
    one["properties"]["suite"] |= {"anyOf": [{"enum": sorted(plan.suites())}, {"pattern": r"\.ya?ml$"}]}
    one["properties"]["statistic"] |= {"enum": statistics}
    for optional in ("beside", "along"):
        one["properties"][optional] |= {"enum": ["", *statistics]}
    entries = {"type": "array", "items": one}
    return json_schema.titled("Claims of mcpo", {**json_schema.of_keys({"claims": entries}), "required": ["claims"]})


def _claim(entry: Mapping[str, Any]) -> Claim:
    needed = [one.name for one in fields(Claim) if one.default is MISSING and one.default_factory is MISSING]
    if missing := [name for name in needed if name not in entry]:
        raise ConfigError(f"{', '.join(missing)} must be given")
    claim = convert(Claim, entry, "")
    arms = plan.read(claim.suite).arms
    _known("arm", claim.arm, arms)
    for name in (claim.baseline or claim.arm, *claim.beyond):
        _known("baseline", name, arms)
    if claim.beyond and not (claim.baseline and len(claim.beyond) == 2):
        raise ConfigError("beyond must be two arms, beside a baseline")
    if bool(claim.outside) != bool(claim.because):
        raise ConfigError("outside and because must be given together")
    _known("statistic", claim.statistic, STATISTICS)
    _known("statistic", claim.beside or claim.statistic, STATISTICS)
    _known("statistic", claim.along or claim.statistic, STATISTICS)
    if claim.along and (claim.relation == "within" or claim.reference):
        raise ConfigError("along: a correlation is claimed to be greater or less than 0", fix="relation: greater")
    return claim


def _known(what: str, name: str, choices: Mapping[str, Any]) -> None:
    if name not in choices:
        raise ConfigError(f"unknown {what} '{name}': {nearest(name, choices)}", fix=f"{what}: {closest(name, choices)}")


def outcomes(claims: Sequence[Claim], data: Mapping[str, Runs]) -> list[Outcome]:
    """Test every claim on every model of its suite, in order. data: the runs by suite."""
    return verdicts([test for claim in claims for test in _tests(claim, data[claim.suite])])


def verdicts(tests: Sequence[Outcome]) -> list[Outcome]:
    """Judge the tests as one family: adjusted p-values and verdicts."""
    adjusted = stats.holm([test.p for test in tests])
    return [_judged(test, float(p_holm)) for test, p_holm in zip(tests, adjusted, strict=True)]


def _judged(test: Outcome, p_holm: float) -> Outcome:
    if math.isnan(test.p):
        return replace(test, verdict=test.claim.outside or "not testable")
    if test.p <= ALPHA:
        return replace(test, p_holm=p_holm, verdict="supported" if test.favours else "contradicted")
    return replace(test, p_holm=p_holm, verdict="unresolved")


def _tests(claim: Claim, runs: Runs) -> Iterator[Outcome]:
    by_arm = {arm: _numbers(claim.statistic, runs, arm) for arm in claim.weights}
    beside = _numbers(claim.beside, runs, claim.arm) if claim.beside else {}
    along = _numbers(claim.along, runs, claim.baseline or claim.arm) if claim.along else {}
    for model, regime in dict.fromkeys((cell.spec.model.name, cell.spec.regime) for cell in runs.cells):
        pairs = [pair for pair in by_arm[claim.arm] if pair[:2] == (model, regime)]
        values: dict[str, list[float]] = {}
        places: list[float] = []
        for pair in pairs:
            numbers = {arm: found.get(pair, {}) for arm, found in by_arm.items()}
            if claim.along and not along.get(pair):
                continue
            for part in numbers[claim.arm]:
                if all(part in own for own in numbers.values()):
                    contrast = sum(weight * numbers[arm][part] for arm, weight in claim.weights.items())
                    values.setdefault(part, []).append(contrast)
                    places += along.get(pair, {}).values()
        if claim.along:
            yield correlated(claim, model, regime, values.get(WHOLE, []), places)
            continue
        shown = [value for pair in pairs for value in beside.get(pair, {}).values()]
        test = outcome(claim, model, regime, values)
        yield replace(test, beside=float(np.mean(shown))) if shown else test


Pair = tuple[str, str, int | None, int, int]
"""Model, regime, point of a design, base seed, seed: what the runs of different arms share."""


def _numbers(statistic: str, runs: Runs, arm: str) -> dict[Pair, Numbers]:
    """The statistic of each run of one arm."""
    return {
        (spec.model.name, spec.regime, cell.point, spec.seed_of_base, spec.seed): STATISTICS[statistic].measure(
            runs, cell
        )
        for cell in runs.cells
        for spec in (cell.spec,)
        if cell.arm == arm
    }


def correlated(claim: Claim, model: str, regime: str, values: Sequence[float], places: Sequence[float]) -> Outcome:
    """The test of a claim about a rank correlation, not yet adjusted for the others.

    Args:
        values: the claim's number at each point.
        places: what it is claimed to go along with, at the same points.
    """
    if len(values) < stats.LEAST:
        why = f"{len(values)} points"
        return Outcome(claim, model, regime, "", Interval(math.nan, math.nan, 0), math.nan, False, math.nan, why=why)
    effect, p_above = stats.rank_correlation(values, places)
    p_for = {"greater": p_above, "less": 1 - p_above}[claim.relation]
    p = min(1.0, 2 * min(p_for, 1 - p_for))
    return Outcome(claim, model, regime, "", effect, math.nan, p_for < 0.5, p, {"": effect})


def outcome(claim: Claim, model: str, regime: str, values: Mapping[str, Sequence[float]]) -> Outcome:
    """One test, not yet adjusted for the others. values: one per seed, by part.

    p is twice the smaller of two one-sided p-values, one for the claim and one against it. For the claim, every part
    must be rejected, so its p-value is the largest of the parts'; against it, one part is enough, so its p-value is the
    smallest times their number. With a margin, the claim needs both bounds rejected (two one-sided tests, Schuirmann
    1987, doi 10.1007/BF01068419); its opposite needs one.
    """
    parts = {part: stats.t_interval(numbers) for part, numbers in values.items()}
    fewest = min((interval.n for interval in parts.values()), default=0)
    if fewest < stats.LEAST or claim.outside:
        few = f"{fewest} seed" + "s" * (fewest > 1) if fewest else "no such records"
        part, effect = next(iter(parts.items()), ("", Interval(math.nan, math.nan, 0)))
        why = claim.because or few
        return Outcome(claim, model, regime, part, effect, math.nan, False, math.nan, parts, why)
    sides = {part: _sides(claim, numbers) for part, numbers in values.items()}
    worst = max(sides, key=lambda part: sides[part])
    p_for = sides[worst][0]
    p_against = min(1.0, len(sides) * min(against for _, against in sides.values()))
    sd = float(np.std(values[worst], ddof=1))
    p = min(1.0, 2 * min(p_for, p_against))
    return Outcome(claim, model, regime, worst, parts[worst], sd, p_for < p_against, p, parts)


def _sides(claim: Claim, values: Sequence[float]) -> tuple[float, float]:
    """One-sided p-values for the claim and against it."""
    over_low, over_high = (stats.p_above(values, claim.reference + shift) for shift in (-claim.margin, claim.margin))
    p_for = {"greater": over_high, "less": 1 - over_low, "within": max(over_low, 1 - over_high)}[claim.relation]
    p_against = {"greater": 1 - over_low, "less": over_high, "within": min(1 - over_low, over_high)}[claim.relation]
    return p_for, p_against
