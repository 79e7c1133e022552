"""Tests the claims of the paper (`experiments/claims.yaml`) on runs: effect, interval and verdict of each test.

A test is one claim on one model (and on one tier, if its statistic is by tier). It compares one number per seed with a
reference by a two-sided Student's t-test. Verdicts use the nominal level, so that they agree with the 95% interval next
to them; each also says whether it holds for all tests together (Holm's method).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import special

from mcpo_cli.analysis import measures, method_measures
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import Numbers, Statistic
from mcpo_cli.config import load, plan
from mcpo_cli.config.plan import Cell
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, closest, nearest
from mcpo_cli.statistics import power, stats
from mcpo_cli.statistics.stats import Interval

PATH = load.EXPERIMENTS / "claims.yaml"
OF_METHODS = load.EXPERIMENTS / "method-claims.yaml"
"""Claims of other papers about the methods that the suites `methods-*` compare."""
STATISTICS: Mapping[str, Statistic] = {**measures.STATISTICS, **method_measures.STATISTICS}
ALPHA = 0.05
POWER = 0.8
Verdict = Literal["supported", "contradicted", "unresolved", "not testable"]
VERDICTS: tuple[Verdict, ...] = ("supported", "contradicted", "unresolved", "not testable")


@dataclass(frozen=True)
class Claim:
    """An entry of `claims.yaml`; the head of that file explains the keys."""

    id: str
    claim: str
    suite: str
    statistic: str
    arm: str
    relation: Literal["greater", "less", "within"]
    where: str = ""
    quote: str = ""
    baseline: str = ""
    reference: float = 0.0
    margin: float = 0.0
    beside: str = ""
    reads: str = ""

    @property
    def tested(self) -> str:
        """The test as a formula: `pass@1: MCPO - DAPO > 0`."""
        arms = f"{self.arm} - {self.baseline}" if self.baseline else self.arm
        sign = {"greater": ">", "less": "<", "within": "="}[self.relation]
        margin = f" ± {self.margin:g}" if self.relation == "within" else ""
        return f"{self.statistic}: {arms} {sign} {self.reference:g}{margin}"


@dataclass(frozen=True)
class Outcome:
    """Result of one test: one claim on the runs of one model."""

    claim: Claim
    model: str
    part: str
    """The tier; empty for the whole run."""
    effect: Interval
    """Mean over seeds and its t-interval; NaN if there are no numbers."""
    sd: float
    """Standard deviation over the seeds."""
    favours: bool
    """Whether the effect lies on the claim's side."""
    p: float
    """Two-sided p-value; NaN if no test is possible."""
    why: str = ""
    """Why no test is possible."""
    beside: float = math.nan
    """Mean of the claim's companion statistic `beside`; NaN if it has none."""
    p_holm: float = math.nan
    """p adjusted over all tests."""
    verdict: Verdict = "not testable"
    seeds: int | None = None
    """Seeds that find this effect with probability POWER if unresolved; None above `power.MOST_SEEDS`."""

    @property
    def holds(self) -> bool:
        """Whether the verdict also holds for all tests together."""
        return self.p_holm <= ALPHA


def read(path: Path = PATH) -> list[Claim]:
    """Read and check the claims.

    Raises:
        ConfigError: a key, suite, arm or statistic is unknown, a key is missing, or an id is used twice.
    """
    claims: list[Claim] = []
    entries = load.read_yaml(path).get("claims")
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


def _claim(entry: Mapping[str, Any]) -> Claim:
    needed = [field.name for field in fields(Claim) if field.default is MISSING]
    if missing := [name for name in needed if name not in entry]:
        raise ConfigError(f"{', '.join(missing)} must be given")
    claim = convert(Claim, entry, "")
    arms = plan.read(claim.suite).arms
    _known("arm", claim.arm, arms)
    _known("baseline", claim.baseline or claim.arm, arms)
    _known("statistic", claim.statistic, STATISTICS)
    _known("statistic", claim.beside or claim.statistic, STATISTICS)
    return claim


def _known(what: str, name: str, choices: Mapping[str, Any]) -> None:
    if name not in choices:
        raise ConfigError(f"unknown {what} '{name}': {nearest(name, choices)}", fix=f"{what}: {closest(name, choices)}")


def outcomes(claims: Sequence[Claim], data: Mapping[str, Runs]) -> list[Outcome]:
    """Test every claim on every model of its suite, in order. data: the runs by suite."""
    return verdicts([test for claim in claims for test in _tests(claim, data[claim.suite])])


def verdicts(tests: Sequence[Outcome]) -> list[Outcome]:
    """Judge the tests as one family: adjusted p-values, verdicts, and seeds needed by unresolved tests."""
    adjusted = stats.holm([test.p for test in tests])
    return [_judged(test, float(p_holm)) for test, p_holm in zip(tests, adjusted, strict=True)]


def _judged(test: Outcome, p_holm: float) -> Outcome:
    if math.isnan(test.p):
        return test
    if test.p <= ALPHA:
        return replace(test, p_holm=p_holm, verdict="supported" if test.favours else "contradicted")
    return replace(test, p_holm=p_holm, verdict="unresolved", seeds=_seeds(test))


def _seeds(test: Outcome) -> int | None:
    """Seeds needed to separate the mean from the nearest bound: reference, or reference plus or minus margin."""
    claim = test.claim
    distance = abs(abs(test.effect.mean - claim.reference) - claim.margin)
    return power.seeds_needed(distance, test.sd, POWER, ALPHA) if test.sd > 0 else None


def _tests(claim: Claim, runs: Runs) -> Iterator[Outcome]:
    arm, baseline = (_numbers(claim.statistic, runs, name) for name in (claim.arm, claim.baseline))
    beside = _numbers(claim.beside, runs, claim.arm)
    for model in dict.fromkeys(cell.spec.model.name for cell in runs.cells):
        mine = [seed for seed in arm if seed[0] == model]
        for part in dict.fromkeys(part for seed in mine for part in arm[seed]) or [""]:
            pairs = [
                (arm[seed][part], baseline[seed][part] if claim.baseline else 0.0)
                for seed in mine
                if part in arm[seed] and (not claim.baseline or part in baseline.get(seed, {}))
            ]
            shown = [value for seed in mine for value in beside.get(seed, {}).values()]
            test = outcome(claim, model, part, [one - other for one, other in pairs])
            yield replace(test, beside=float(np.mean(shown))) if shown else test


def _numbers(statistic: str, runs: Runs, arm: str) -> dict[tuple[str, int], Numbers]:
    """The statistic of each run of one arm, by model and seed."""

    def measured(cell: Cell) -> Numbers:
        return STATISTICS[statistic].measure(runs, cell)

    return {
        (cell.spec.model.name, cell.spec.seed): measured(cell) for cell in runs.cells if cell.arm == arm and statistic
    }


def outcome(claim: Claim, model: str, part: str, values: Sequence[float]) -> Outcome:
    """One test, not yet adjusted for the others. values: one per seed.

    p is twice the smaller of two one-sided p-values, one for the claim and one against it. With a margin, the claim
    needs both bounds rejected (two one-sided tests, Schuirmann 1987, doi 10.1007/BF01068419); its opposite needs one.
    """
    if len(values) < 2:
        why = "one seed" if values else "no such records"
        effect = stats.t_interval(values) if values else Interval(math.nan, math.nan, 0)
        return Outcome(claim, model, part, effect, math.nan, False, math.nan, why)
    effect, sd = stats.t_interval(values), float(np.std(values, ddof=1))
    over_low, over_high = (
        _p_over(effect.mean - claim.reference + shift, sd, effect.n) for shift in (claim.margin, -claim.margin)
    )
    p_for = {"greater": over_high, "less": 1 - over_low, "within": max(over_low, 1 - over_high)}[claim.relation]
    p_against = {"greater": 1 - over_low, "less": over_high, "within": min(1 - over_low, over_high)}[claim.relation]
    return Outcome(claim, model, part, effect, sd, p_for < p_against, min(1.0, 2 * min(p_for, p_against)))


def _p_over(distance: float, sd: float, n: int) -> float:
    """One-sided p-value for a true mean above a bound that lies `distance` below the mean of `n` values."""
    if sd == 0:
        return 0.5 if distance == 0 else float(distance < 0)
    return float(special.stdtr(n - 1, -distance / sd * math.sqrt(n)))
