"""Support of a claim by its numbers: intervals at three scopes and three cases, verdicts, and impossible numbers."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from mcpo_cli.compare import verdicts
from mcpo_cli.compare.claim import Number, PublishedClaim, PublishedPair
from mcpo_cli.statistics import published
from mcpo_cli.statistics.crossed import Estimate, Part
from mcpo_cli.statistics.power import ALPHA, noncentrality
from mcpo_cli.statistics.published import CASES, SCOPES, Case, Parts, PublishedArm, Scope, Spread
from mcpo_cli.statistics.stats import LEAST, Student

ALL = "mean of all"
"""Used as a benchmark: the mean over the rows against one b."""
KEYS = ("benchmark", "model", "against", "metric", "pairs", "positive")
"""Columns of a row that its cases repeat."""
DESIGNS = (3, 5, 10)
"""Numbers of training runs for which the number of problems is given that finds the difference."""
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
    """The answer.

    rows: one per pair, and one per mean over pairs: the numbers, the difference, the verdict about other trainings, the
    terms that an undecided one lacks (`without`), the detectable difference, and the problems that would find it.
    cases: one row per row of `rows` (its index is `row`), scope and case: error, df, low, high, p, verdict.
    notes: sentences on impossible numbers.
    """

    rows: list[dict[str, Any]]
    cases: pd.DataFrame
    notes: list[str]


@dataclass(frozen=True)
class _Asked:
    """A difference: its columns, its variance by scope and case, and the number of problems behind it."""

    row: dict[str, Any]
    parts: Callable[[Scope, Case], Parts]
    problems: int


def support(claim: PublishedClaim) -> Support:
    """Answer a claim."""
    notes: list[str] = []
    asked: list[_Asked] = []
    impossible, groups = [], defaultdict(list)
    for pair in claim.rows:
        row, arms = _columns(pair, claim), list[PublishedArm]()
        for number, name in ((pair.a, claim.names[0]), (pair.b, row["against"])):
            about = " ".join(filter(None, (pair.benchmark, pair.model, name)))
            if 0 <= number.value <= 1:
                arm, said = _arm(number, pair, claim)
                arms.append(arm)
            else:
                said = [f"{number.value:.6g} is not a share: it lies outside 0..1"]
                row |= {"verdict": "not testable", "without": said[0]}
            notes += [f"{about}: {note}" for note in said]
        if len(arms) < 2:
            impossible.append(row)
            continue
        parts = partial(published.parts, arms[0], arms[1], claim.assume, paired=pair.paired)
        row |= _reach(row, parts("trainings", "plausible"), claim.margin) | {
            "without": _lacking(row["difference"], parts)
        }
        asked.append(_Asked(row, parts, pair.problems))
        groups[row["against"], row["metric"]].append(asked[-1])
    asked += [_mean(members) for members in groups.values() if len(members) > 1]
    cases = _cases(asked, claim.margin)
    for at, one in enumerate(asked):
        words = set(cases["verdict"][(cases["row"] == at) & (cases["scope"] == "trainings")])
        one.row.update({"verdict": words.pop(), "without": ""} if len(words) == 1 else {"verdict": "undecided"})
    return Support([*(one.row for one in asked), *impossible], cases, list(dict.fromkeys(notes)))


def _arm(number: Number, row: PublishedPair, claim: PublishedClaim) -> tuple[PublishedArm, list[str]]:
    """The variances of a number, and sentences on errors in it."""
    said: list[str] = []
    sets = number.samples if row.of_samples else max(1.0, number.samples / row.k)
    problem_M, answer_M, plausible = _spread(number, row, claim, sets, said)
    answers = row.problems * sets * number.seeds
    return PublishedArm(problem_M / row.problems, answer_M / answers, plausible, number.seeds, number.sd), said


def _spread(number: Number, row: PublishedPair, claim: PublishedClaim, sets: float, said: list[str]) -> Spread:
    """The spreads that the published numbers allow."""
    value, tolerance = _exact(number, row, claim.unit, said)
    drawn = _is_drawn(number, row, claim.unit, said)
    if number.se is not None:
        most = math.sqrt(number.value * (1 - number.value) / (row.problems - 1))
        # One sample per problem leaves no choice.
        least = most * math.sqrt(1 - 1 / row.problems) if sets <= 1 else 0.0
        if not least - claim.unit <= number.se <= most + claim.unit:
            said.append(f"a standard error of {number.se:.4g} is not in {least:.4g} to {most:.4g}, as this mean allows")
        if sets > 1:
            return published.spread_of_error(number.value, number.se, row.problems, sets)
    elif number.second is not None and row.of_samples and number.samples > 1 and number.seeds == 1:
        name, _, k = number.second_metric.partition("@")
        if (kind := "best" if drawn and int(k) == number.samples else name) in ("pass", "best"):
            tolerances = tolerance, claim.unit + (DRAWN if kind == "best" else 0.0)
            counts = row.problems, number.samples
            square = published.mean_square(*counts, value, number.second, int(k), kind, tolerances)
            if square is not None:
                return published.spread_of_squares(value, square, *counts, claim.assume.spread)
            both = f"{row.metric} {number.value:.6g} and {number.second_metric} {number.second:.6g}"
            said.append(f"no counts of correct samples give both {both}")
    value = number.value
    if value in (0, 1):
        # Other problems or answers could differ.
        said.append(f"a mean of {value:g} shows no variance; that of one problem in {row.problems + 2} is taken")
        value = abs(value - 1 / (row.problems + 2))
    return published.assumed_spread(value, claim.assume.spread)


def _exact(number: Number, row: PublishedPair, unit: float, said: list[str]) -> tuple[float, float]:
    """The mean, exact if it shows the number of correct samples, and its largest distance from the true one."""
    of = row.problems * number.samples * number.seeds
    if not row.of_samples or not _shown(of, unit):
        return number.value, unit
    right = published.multiple(number.value, of, unit)
    if right is not None:
        return right / of, 0.0
    counts = f"{row.problems} problems x {number.samples} samples x {number.seeds} runs"
    said.append(f"{number.value:.6g} is not a number of correct samples out of {of} ({counts})")
    return number.value, unit


def _is_drawn(number: Number, row: PublishedPair, unit: float, said: list[str]) -> bool:
    """True if pass@k of k samples, which would be a share of problems, is none."""
    of, name = row.problems * number.seeds, f"pass@{number.samples}"
    value = {row.metric: number.value, number.second_metric: number.second}.get(name)
    if value is None or name == "pass@1" or not _shown(of, unit) or published.multiple(value, of, unit) is not None:
        return False
    why = f"{name} {value:.6g} is no multiple of 1/{of}, so it is not the share of problems with a right sample"
    said.append(f"{why}; best@{number.samples}, drawn with replacement, can have this value")
    return True


def _shown(of: int, unit: float) -> bool:
    """True if multiples of 1 / of are further apart than printed numbers."""
    return 1 / of > 1.5 * unit


def _cases(asked: Sequence[_Asked], margin: float | None) -> pd.DataFrame:
    """The intervals, p-values and verdicts of all rows, scopes and cases."""
    tests: list[dict[str, Any]] = []
    for scope in SCOPES:
        for case in CASES:
            for at, one in enumerate(asked):
                key = {name: value for name, value in one.row.items() if name in KEYS}
                found, difference = one.parts(scope, case), one.row["difference"]
                test = Student(difference, found.error, found.df, one.problems)
                # Each metric is a family of its own, and so are its means.
                family = f"{one.row['metric']}, {one.row['benchmark'] == ALL}, {scope}, {case}"
                z = difference / found.error if found.error else math.nan
                tested = {"difference": difference, "error": found.error, "z": z, "df": found.df}
                estimate = Estimate(test, (Part("problem", math.nan, math.nan),), one.problems, one.problems, (1,))
                tested |= verdicts.judged(estimate, margin, ALPHA)
                more = {"row": at, "test": len(tests), "family": family}
                tests.append({**key, "scope": scope, "case": case, **tested, **more})
    if not tests:
        return pd.DataFrame()
    return verdicts.decided(pd.DataFrame(tests)).drop(columns=["family", "test", "identical", "student"])


def _columns(pair: PublishedPair, claim: PublishedClaim) -> dict[str, Any]:
    return {
        "benchmark": pair.benchmark,
        "model": pair.model,
        "against": pair.against or claim.names[1],
        **{name: getattr(pair, name) for name in ("metric", "problems", "paired")},
        **{side: getattr(pair, side).value for side in "ab"},
        "difference": pair.a.value - pair.b.value,
        **{name: min(getattr(pair.a, name), getattr(pair.b, name)) for name in ("samples", "seeds")},
    }


def _reach(row: dict[str, Any], found: Parts, margin: float | None) -> dict[str, Any]:
    """The difference that the design finds, and the problems that find this one, with more training runs, too."""
    effect, designs = margin or abs(row["difference"]), (row["seeds"], *DESIGNS)
    problems = {
        seeds: published.problems_needed(effect, found, row["problems"], row["seeds"] / seeds)
        for seeds in designs
        if seeds >= row["seeds"] and effect
    }
    return {"detectable": found.error * noncentrality(found.df), "problems_needed": problems}


def _lacking(difference: float, parts: Callable[..., Parts]) -> str:
    """The terms whose range alone decides if there is a difference; all that change its error if none does."""
    deciding, unknown = [], []
    for name, term in TERMS.items():
        best, worst = (parts("trainings", case, only=name) for case in ("best", "worst"))
        reach = [Student(0.0, one.error, one.df, LEAST).interval().high for one in (best, worst)]
        unknown += [term] * (reach[0] < reach[1])
        deciding += [term] * (reach[0] < abs(difference) <= reach[1])
    return "; ".join(deciding or unknown)


def _mean(members: Sequence[_Asked]) -> _Asked:
    """The mean over several rows."""
    rows = [one.row for one in members]

    def parts(scope: Scope, case: Case) -> Parts:
        each = [one.parts(scope, case) for one in members]
        return published.pooled(each, [row["benchmark"] for row in rows], [row["model"] for row in rows], case)

    differences = [row["difference"] for row in rows]
    mean = {"difference": sum(differences) / len(rows), "pairs": len(rows)}
    mean |= {"positive": sum(value > 0 for value in differences), "without": "; ".join(TERMS.values())}
    return _Asked(rows[0] | {"benchmark": ALL, "model": ""} | mean, parts, LEAST)
