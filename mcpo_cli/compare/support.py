"""Support of a claim by its numbers: intervals at three scopes and three cases, verdicts, and impossible numbers."""

import itertools
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
Asked = tuple[dict[str, Any], Callable[[Scope, Case], Parts]]
"""The columns of a difference, and its variance by scope and case."""


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


def support(claim: PublishedClaim) -> Support:
    """Answer a claim."""
    notes: dict[str, None] = {}
    asked, impossible = list[Asked](), list[dict[str, Any]]()
    groups: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for pair in claim.rows:
        row: dict[str, Any] = {
            "benchmark": pair.benchmark,
            "model": pair.model,
            "against": pair.against or claim.names[1],
            **{name: getattr(pair, name) for name in ("metric", "problems", "paired")},
            "a": pair.a.value,
            "b": pair.b.value,
            "difference": pair.a.value - pair.b.value,
            **{name: min(getattr(pair.a, name), getattr(pair.b, name)) for name in ("samples", "seeds")},
        }
        arms = list[PublishedArm]()
        for number, name in ((pair.a, claim.names[0]), (pair.b, row["against"])):
            errors = list[str]()
            if 0 <= number.value <= 1:
                arms.append(_arm(number, pair, claim, errors))
            else:
                errors.append(f"{number.value:.6g} is not a share: it lies outside 0..1")
                row |= {"verdict": "not testable", "without": errors[0]}
            about = " ".join(filter(None, (pair.benchmark, pair.model, name)))
            notes |= dict.fromkeys(f"{about}: {error}" for error in errors)
        if len(arms) < 2:
            impossible.append(row)
            continue
        parts = partial(published.parts, arms[0], arms[1], claim.assume, paired=pair.paired)
        row |= _reach(row, parts("trainings", "plausible"), claim.margin)
        row["without"] = _lacking(row["difference"], parts)
        asked.append((row, parts))
        groups[row["against"], row["metric"]].append(asked[-1])
    asked += [_mean(members) for members in groups.values() if len(members) > 1]
    cases = _cases(asked, claim.margin)
    for at, (row, _) in enumerate(asked):
        words = set(cases["verdict"][(cases["row"] == at) & (cases["scope"] == "trainings")])
        row.update({"verdict": words.pop(), "without": ""} if len(words) == 1 else {"verdict": "undecided"})
    return Support([*(row for row, _ in asked), *impossible], cases, list(notes))


def _arm(number: Number, pair: PublishedPair, claim: PublishedClaim, errors: list[str]) -> PublishedArm:
    """The variances of a number; sentences on errors in it are added to `errors`."""
    sets = number.samples if pair.of_samples else max(1.0, number.samples / pair.k)
    problem_M, answer_M, plausible = _spread(number, pair, claim, sets, errors)
    answers = pair.problems * sets * number.seeds
    return PublishedArm(problem_M / pair.problems, answer_M / answers, plausible, number.seeds, number.sd)


def _spread(number: Number, pair: PublishedPair, claim: PublishedClaim, sets: float, errors: list[str]) -> Spread:
    """The spreads that the published numbers allow."""
    value, unit, samples = number.value, claim.unit, number.samples
    mean, tolerance = value, unit
    if pair.of_samples and _shown(of := pair.problems * samples * number.seeds, unit):
        if (right := published.multiple(value, of, unit)) is None:
            counts = f"{pair.problems} problems x {samples} samples x {number.seeds} runs"
            errors.append(f"{value:.6g} is not a number of correct samples out of {of} ({counts})")
        else:
            mean, tolerance = right / of, 0.0
    if drawn := _is_drawn(number, pair, unit):
        errors.append(drawn)
    if number.se is not None:
        most = math.sqrt(value * (1 - value) / (pair.problems - 1))
        # One sample per problem leaves no choice.
        least = most * math.sqrt(1 - 1 / pair.problems) if sets <= 1 else 0.0
        if not least - unit <= number.se <= most + unit:
            errors.append(
                f"a standard error of {number.se:.4g} is not in {least:.4g} to {most:.4g}, as this mean allows"
            )
        if sets > 1:
            return published.spread_of_error(value, number.se, pair.problems, sets)
    elif number.second is not None and pair.of_samples and samples > 1 and number.seeds == 1:
        name, _, k = number.second_metric.partition("@")
        if (kind := "best" if drawn and int(k) == samples else name) in ("pass", "best"):
            tolerances = tolerance, unit + (DRAWN if kind == "best" else 0.0)
            square = published.mean_square(pair.problems, samples, mean, number.second, int(k), kind, tolerances)
            if square is not None:
                return published.spread_of_squares(mean, square, pair.problems, samples, claim.assume.spread)
            both = f"{pair.metric} {value:.6g} and {number.second_metric} {number.second:.6g}"
            errors.append(f"no counts of correct samples give both {both}")
    if value in (0, 1):
        # Other problems or answers could differ.
        errors.append(f"a mean of {value:g} shows no variance; that of one problem in {pair.problems + 2} is taken")
        value = abs(value - 1 / (pair.problems + 2))
    return published.assumed_spread(value, claim.assume.spread)


def _is_drawn(number: Number, pair: PublishedPair, unit: float) -> str:
    """The sentence on pass@k of k samples that is no share of problems, which it would be; empty if it is one."""
    of, name = pair.problems * number.seeds, f"pass@{number.samples}"
    value = {pair.metric: number.value, number.second_metric: number.second}.get(name)
    if value is None or name == "pass@1" or not _shown(of, unit) or published.multiple(value, of, unit) is not None:
        return ""
    why = f"{name} {value:.6g} is no multiple of 1/{of}, so it is not the share of problems with a right sample"
    return f"{why}; best@{number.samples}, drawn with replacement, can have this value"


def _shown(of: int, unit: float) -> bool:
    """True if multiples of 1 / of are further apart than printed numbers."""
    return 1 / of > 1.5 * unit


def _cases(asked: Sequence[Asked], margin: float | None) -> pd.DataFrame:
    """The intervals, p-values and verdicts of all rows, scopes and cases."""
    tests: list[dict[str, Any]] = []
    for scope, case, (at, (row, parts)) in itertools.product(SCOPES, CASES, enumerate(asked)):
        variance, difference, is_mean = parts(scope, case), row["difference"], row["benchmark"] == ALL
        problems = LEAST if is_mean else row["problems"]
        test = Student(difference, variance.error, variance.df, problems)
        estimate = Estimate(test, (Part("problem", math.nan, math.nan),), problems, problems, (1,))
        tests.append(
            {
                **{name: value for name, value in row.items() if name in KEYS},
                "scope": scope,
                "case": case,
                "difference": difference,
                "error": test.error,
                "z": difference / test.error if test.error else math.nan,
                "df": test.df,
                **verdicts.judged(estimate, margin, ALPHA),
                "row": at,
                "test": len(tests),
                # Each metric is a family of its own, and so are its means.
                "family": f"{row['metric']}, {is_mean}, {scope}, {case}",
            }
        )
    if not tests:
        return pd.DataFrame()
    return verdicts.decided(pd.DataFrame(tests)).drop(columns=["family", "test", "identical", "student"])


def _reach(row: dict[str, Any], variance: Parts, margin: float | None) -> dict[str, Any]:
    """The difference that the design finds, and the problems that find this one, with more training runs, too."""
    effect, seeds = margin or abs(row["difference"]), row["seeds"]
    problems = {
        more: published.problems_needed(effect, variance, row["problems"], seeds / more)
        for more in (seeds, *DESIGNS)
        if more >= seeds and effect
    }
    return {"detectable": variance.error * noncentrality(variance.df), "problems_needed": problems}


def _lacking(difference: float, parts: Callable[..., Parts]) -> str:
    """The terms whose range alone decides if there is a difference; all that change its error if none does."""
    deciding, unknown = [], []
    for name, term in TERMS.items():
        best, worst = (parts("trainings", case, only=name) for case in ("best", "worst"))
        low, high = (Student(0.0, end.error, end.df, LEAST).interval().high for end in (best, worst))
        unknown += [term] * (low < high)
        deciding += [term] * (low < abs(difference) <= high)
    return "; ".join(deciding or unknown)


def _mean(members: Sequence[Asked]) -> Asked:
    """The mean over several rows."""
    rows = [row for row, _ in members]
    differences = [row["difference"] for row in rows]

    def parts(scope: Scope, case: Case) -> Parts:
        each = [parts_of_row(scope, case) for _, parts_of_row in members]
        return published.pooled(each, [row["benchmark"] for row in rows], [row["model"] for row in rows], case)

    return rows[0] | {
        "benchmark": ALL,
        "model": "",
        "difference": sum(differences) / len(rows),
        "pairs": len(rows),
        "positive": sum(value > 0 for value in differences),
        "without": "; ".join(TERMS.values()),
    }, parts
