"""Support of a claim by its numbers: intervals at three scopes and three cases, verdicts, and impossible numbers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from mcpo_cli.compare import verdicts
from mcpo_cli.compare.claim import Claim, Metric, Number, Pair
from mcpo_cli.statistics import published
from mcpo_cli.statistics.crossed import Estimate, Part
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.published import CASES, SCOPES, Assumed, Case, Mean, Parts, Scope, Spread
from mcpo_cli.statistics.stats import LEAST, Student

ALL = "mean of all"
"""Used as a benchmark: the mean over the rows against one b."""
PROBLEM = Part("problem", math.nan, math.nan)
"""Says that an interval is about problems, too."""
DRAWN = 0.0032
"""Distance between verl's best@8 of 30 problems, from 1 000 draws with one seed, and the formula: the draws of that
seed are off by up to .0012, and their order over the samples adds a standard deviation of up to .0010."""
TERMS = {
    "spread": "the number of correct samples of each problem",
    "correlation": "the scores of both on each problem",
    "run_sd": "the standard deviation over training runs",
}
"""The data that would replace an assumption."""


@dataclass(frozen=True)
class Support:
    """The answer, as tidy frames."""

    rows: pd.DataFrame
    """One row per pair, and one per mean over pairs: the numbers, the difference, the verdict about other trainings,
    the terms that an undecided one lacks (`without`), the detectable difference, and the numbers needed to find it."""
    cases: pd.DataFrame
    """One row per row of `rows`, scope and case: error, df, low, high, p, p_adjusted, verdict."""
    notes: tuple[str, ...]
    """Sentences on numbers that contradict their names, and on findings from a second number."""


@dataclass(frozen=True)
class _Asked:
    """A pair with its two means."""

    pair: Pair
    one: Mean
    other: Mean

    @property
    def difference(self) -> float:
        return self.pair.a.value - self.pair.b.value

    def parts(self, assumed: Assumed, scope: Scope, case: Case) -> Parts:
        return published.parts(self.one, self.other, assumed, scope, case, paired=self.pair.paired)


def support(claim: Claim) -> Support:
    """Answer a claim."""
    notes: list[str] = []
    asked, impossible = [], []
    for pair in claim.pairs:
        label = " ".join(filter(None, (pair.benchmark, pair.model)))
        if outside := [number.value for number in (pair.a, pair.b) if not 0 <= number.value <= 1]:
            why = f"{outside[0]:.6g} is not a share: it lies outside 0..1"
            notes.append(f"{label}: {why}" if label else why)
            impossible.append(_row(pair, claim) | {"verdict": "not testable", "without": why})
            continue
        means = []
        for number, name in ((pair.a, claim.names[0]), (pair.b, pair.against)):
            spread, said = _spread(number, pair, claim)
            notes += [f"{' '.join(filter(None, (label, name)))}: {one}" for one in said]
            means.append(
                Mean(number.value, pair.problems, pair.metric.sets(number.samples), number.seeds, spread, number.sd)
            )
        asked.append(_Asked(pair, *means))
    cases = _cases(asked, claim)
    rows = [_decided(row, cases) for row in _rows(asked, claim)]
    return Support(pd.DataFrame([*rows, *impossible]), cases, tuple(dict.fromkeys(notes)))


# --- what numbers can be ----------------------------------------------------------------------------------------------


def _spread(number: Number, pair: Pair, claim: Claim) -> tuple[Spread, list[str]]:
    """An arm's variances, from published numbers if these give them, and the errors in its numbers."""
    said: list[str] = []
    value, tolerance = number.value, claim.unit
    if pair.metric.of_samples and _checkable(pair.problems * number.samples * number.seeds, claim.unit):
        value, tolerance = _exact(number, pair, claim.unit, said)
    for metric, shown in ((pair.metric, number.value), *([number.second] if number.second else [])):
        said += _not_a_share(metric, shown, number, pair, claim.unit)
    if number.se is not None:
        return _of_error(number, pair, claim, said), said
    if number.second and pair.metric.of_samples and number.samples > 1 and number.seeds == 1:
        return _of_second(value, tolerance, number, pair, claim, said), said
    return _assumed(number.value, pair, claim, said), said


def _assumed(value: float, pair: Pair, claim: Claim, said: list[str]) -> Spread:
    """The assumed spread; means of 0 and 1 also have one, because other problems or answers could differ."""
    if value in (0, 1):
        said.append(f"a mean of {value:g} shows no variance; that of one problem in {pair.problems + 2} is taken")
        value = abs(value - 1 / (pair.problems + 2))
    return published.assumed_spread(value, claim.assumed.spread)


def _checkable(of: int, unit: float) -> bool:
    """True if multiples of 1 / of are further apart than printed numbers."""
    return 1 / of > 1.5 * unit


def _exact(number: Number, pair: Pair, unit: float, said: list[str]) -> tuple[float, float]:
    """The mean from a whole number of correct samples, and its largest distance from the true one."""
    of = pair.problems * number.samples * number.seeds
    right = published.multiple(number.value, of, unit)
    if right is None:
        said.append(
            f"{number.value:.6g} is not a number of correct samples out of {of} ({pair.problems} problems x "
            f"{number.samples} samples x {number.seeds} runs)"
        )
        return number.value, unit
    return right / of, 0.0


def _not_a_share(metric: Metric, value: float, number: Number, pair: Pair, unit: float) -> list[str]:
    """An error if pass@k of k samples, which is a share of problems, is not one."""
    of = pair.problems * number.seeds
    if metric.kind != "pass" or metric.of_samples or metric.k != number.samples or not _checkable(of, unit):
        return []
    if published.multiple(value, of, unit) is not None:
        return []
    can = f"best@{metric.k}, drawn with replacement, can have this value"
    return [
        f"{metric} {value:.6g} is no multiple of 1/{of}, so it is not the share of problems with a right sample; {can}"
    ]


def _of_error(number: Number, pair: Pair, claim: Claim, said: list[str]) -> Spread:
    assert number.se is not None
    most = math.sqrt(number.value * (1 - number.value) / (pair.problems - 1))
    sets = pair.metric.sets(number.samples)
    if number.se > most + claim.unit:
        said.append(
            f"a standard error of {number.se:.4g} over {pair.problems} problems is above the largest, {most:.4g}"
        )
    if sets <= 1:
        if number.se < most * math.sqrt(1 - 1 / pair.problems) - claim.unit:
            said.append(f"a standard error of {number.se:.4g} is below that of one sample per problem, {most:.4g}")
        return _assumed(number.value, pair, claim, said)
    return published.spread_of_error(number.value, number.se, pair.problems, sets)


def _of_second(value: float, tolerance: float, number: Number, pair: Pair, claim: Claim, said: list[str]) -> Spread:
    """The spread that both numbers allow: pass@k is below what equally hard problems would give."""
    assert number.second is not None
    metric, other = number.second
    kind = "best" if _not_a_share(metric, other, number, pair, claim.unit) else metric.kind
    if kind not in ("pass", "best"):
        return _assumed(value, pair, claim, said)
    other_tolerance = claim.unit + (DRAWN if kind == "best" else 0.0)
    counts = pair.problems, number.samples
    square = published.mean_square(*counts, value, other, metric.k, kind, (tolerance, other_tolerance))
    if square is None:
        said.append(f"no counts of correct samples give both {pair.metric} {number.value:.6g} and {metric} {other:.6g}")
        return _assumed(value, pair, claim, said)
    return published.spread_of_squares(value, square, pair.problems, number.samples, claim.assumed.spread)


# --- what differences can be ------------------------------------------------------------------------------------------


def _groups(asked: Sequence[_Asked]) -> Iterator[tuple[str, Metric, list[_Asked]]]:
    """The rows that are averaged: several against one b, in one metric."""
    groups: dict[tuple[str, Metric], list[_Asked]] = {}
    for one in asked:
        groups.setdefault((one.pair.against, one.pair.metric), []).append(one)
    return ((*key, members) for key, members in groups.items() if len(members) > 1)


def _cases(asked: Sequence[_Asked], claim: Claim) -> pd.DataFrame:
    """The intervals, p-values and verdicts of all rows, scopes and cases."""
    rows = []
    for scope in SCOPES:
        for case in CASES:
            about = {"scope": scope, "case": case}
            for one in asked:
                found = one.parts(claim.assumed, scope, case)
                key = {**_key(one.pair), **about, "family": f"rows, {scope}, {case}"}
                rows.append(key | _tested(one.difference, found, one.pair.problems, claim.margin))
            for against, metric, members in _groups(asked):
                parts = [one.parts(claim.assumed, scope, case) for one in members]
                benchmarks, models = [one.pair.benchmark for one in members], [one.pair.model for one in members]
                mean = _mean(against, metric, members)
                tested = _tested(
                    mean["difference"], published.pooled(parts, benchmarks, models, case), LEAST, claim.margin
                )
                rows.append({**mean, **about, "family": f"{ALL}, {scope}, {case}"} | tested)
    if not rows:
        return pd.DataFrame()
    whole = pd.DataFrame(rows)
    # Each metric is a family of its own.
    whole = whole.assign(family=whole["metric"] + ", " + whole["family"], test=range(len(whole)))
    return verdicts.decided(whole).drop(columns=["family", "test"])


def _key(pair: Pair) -> dict[str, object]:
    return {"benchmark": pair.benchmark, "model": pair.model, "against": pair.against, "metric": str(pair.metric)}


def _mean(against: str, metric: Metric, members: Sequence[_Asked]) -> dict[str, Any]:
    """The mean over several rows."""
    differences = [one.difference for one in members]
    return {
        "benchmark": ALL,
        "model": "",
        "against": against,
        "metric": str(metric),
        "difference": sum(differences) / len(members),
        "pairs": len(members),
        "positive": sum(value > 0 for value in differences),
    }


def _tested(difference: float, found: Parts, problems: int, margin: float | None) -> dict[str, object]:
    test = Student(difference, found.error, found.df, problems)
    z = difference / found.error if found.error else math.nan
    own = {"difference": difference, "error": found.error, "z": z, "df": found.df}
    return own | verdicts.judged(Estimate(test, (PROBLEM,), problems, (1,)), margin, ALPHA)


def _row(pair: Pair, claim: Claim) -> dict[str, object]:
    seeds = min(pair.a.seeds, pair.b.seeds)
    return {
        **_key(pair),
        "a": pair.a.value,
        "b": pair.b.value,
        "difference": pair.a.value - pair.b.value,
        "problems": pair.problems,
        "samples": min(pair.a.samples, pair.b.samples),
        "seeds": seeds,
        "paired": pair.paired,
    }


def _rows(asked: Sequence[_Asked], claim: Claim) -> Iterator[dict[str, object]]:
    for one in asked:
        pair, found = one.pair, one.parts(claim.assumed, "trainings", "plausible")
        effect = claim.margin or abs(one.difference)
        sets = min(one.one.sets, one.other.sets)
        seeds = min(pair.a.seeds, pair.b.seeds)
        design = (effect, found, pair.problems, seeds, sets)
        needed, designs = (published.needed(*design), published.designs(*design)) if effect else ({}, {})
        if needed.get("samples") is not None and not pair.metric.of_samples:
            needed["samples"] = math.ceil(float(needed["samples"] or 0) * pair.metric.k)
        yield {
            **_row(pair, claim),
            "detectable": published.detectable(found),
            **{f"needed_{name}": value for name, value in needed.items()},
            **{f"problems_with_{number}_seeds": value for number, value in designs.items()},
            "without": _lacking(one, claim.assumed),
        }
    for against, metric, members in _groups(asked):
        yield _mean(against, metric, members) | {"without": "; ".join(TERMS.values())}


def _lacking(one: _Asked, assumed: Assumed) -> str:
    """The terms whose assumed range alone decides if there is a difference; all if only several together do."""
    middle = Assumed(**{name: (getattr(assumed, name)[1],) * 3 for name in TERMS})
    plain = replace(one, one=_middle(one.one), other=_middle(one.other))
    ranges = {
        "spread": max(len(mean.spread.answer_M) for mean in (one.one, one.other)) > 1,
        "correlation": one.pair.paired,
        "run_sd": one.one.run_sd is None or one.other.run_sd is None,
    }
    unknown = {name: term for name, term in TERMS.items() if ranges[name]}
    deciding = []
    for name, term in unknown.items():
        ranged = replace(middle, **{name: getattr(assumed, name)})
        asked = one if name == "spread" else plain
        best, worst = (_excludes_zero(asked, ranged, case) for case in ("best", "worst"))
        if best != worst:
            deciding.append(term)
    return "; ".join(deciding or unknown.values())


def _excludes_zero(one: _Asked, assumed: Assumed, case: Case) -> bool:
    found = one.parts(assumed, "trainings", case)
    interval = Student(one.difference, found.error, found.df, LEAST).interval()
    return interval.low > 0 or interval.high < 0


def _middle(mean: Mean) -> Mean:
    return replace(mean, spread=mean.spread.middle)


def _decided(row: dict[str, object], cases: pd.DataFrame) -> dict[str, object]:
    """The row with its verdict: the word of all three cases, or `undecided` with the lacking terms as `without`."""
    own = cases[cases["scope"] == "trainings"]
    for name in ("benchmark", "model", "against", "metric"):
        own = own[own[name] == row[name]]
    words = set(own["verdict"])
    if len(words) > 1:
        return row | {"verdict": "undecided"}
    return row | {"verdict": words.pop(), "without": ""}
