"""What published pairs of numbers support: intervals at three scopes and three cases, verdicts, impossible numbers."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from mcpo_cli.compare import verdicts
from mcpo_cli.compare.published_pairs import PublishedNumber, PublishedPair
from mcpo_cli.statistics import published
from mcpo_cli.statistics.crossed import Estimate, Part
from mcpo_cli.statistics.power import ALPHA, noncentrality
from mcpo_cli.statistics.published import CASES, SCOPES, Assumed, PublishedArm
from mcpo_cli.statistics.stats import LEAST, Student

TERMS = {
    "spread": "the number of correct samples of each problem",
    "correlation": "the scores of both on each problem",
    "run_sd": "the standard deviation over training runs",
}
"""The data that would replace an assumption."""


@dataclass(frozen=True)
class Support:
    """The answer.

    rows: one per pair: the numbers, the difference, the verdict about other trainings, the terms that an undecided
    verdict lacks (`without`), and the detectable difference.
    cases: one row per pair (its index is `row`), scope and case: error, df, low, high, p, verdict.
    notes: sentences on impossible numbers.
    """

    rows: list[dict[str, Any]]
    cases: pd.DataFrame
    notes: list[str]


def support(pairs: Sequence[PublishedPair], assumed: Assumed) -> Support:
    """Answer for each pair; p-values are adjusted over the pairs in one metric."""
    rows, tests, notes = list[dict[str, Any]](), list[dict[str, Any]](), list[str]()
    for at, pair in enumerate(pairs):
        a, b = (_arm(number, pair, assumed) for number in (pair.a, pair.b))
        error = partial(published.error, a, b, assumed, paired=pair.paired)
        difference, (plausible, df) = pair.a.value - pair.b.value, error("trainings", "plausible")
        for scope, case in itertools.product(SCOPES, CASES):
            family = f"{pair.metric}, {scope}, {case}"
            case_row = {"label": pair.label, "metric": pair.metric, "scope": scope, "case": case, "family": family}
            tests.append(case_row | _test(pair, *error(scope, case)) | {"row": at, "test": len(tests)})
        rows.append(
            {
                **{name: getattr(pair, name) for name in ("label", "metric", "problems", "paired", "margin")},
                **{name: min(getattr(pair.a, name), getattr(pair.b, name)) for name in ("samples", "seeds")},
                "a": pair.a.value,
                "b": pair.b.value,
                "difference": difference,
                "detectable": plausible * noncentrality(df),
                "without": _lacking(difference, error),
            }
        )
        for name, number in (("a", pair.a), ("b", pair.b)):
            notes += [f"{pair.label} {name}: {reason}".lstrip() for reason in _impossible(number, pair)]
    cases = verdicts.decided(pd.DataFrame(tests)).drop(columns=["family", "test", "identical", "student"])
    for row, words in zip(rows, cases[cases["scope"] == "trainings"].groupby("row")["verdict"].unique(), strict=True):
        row["verdict"], row["without"] = (words[0], "") if len(words) == 1 else ("undecided", row["without"])
    return Support(rows, cases, notes)


def _test(pair: PublishedPair, error: float, df: float) -> dict[str, object]:
    """The comparison's columns of the difference, with this standard error."""
    test = Student(pair.a.value - pair.b.value, error, df, pair.problems)
    estimate = Estimate(test, (Part("problem", math.nan, math.nan),), pair.problems, pair.problems, (1,))
    return {"error": error, "df": df, **verdicts.judged(estimate, pair.margin, ALPHA, share=True)}


def _arm(number: PublishedNumber, pair: PublishedPair, assumed: Assumed) -> PublishedArm:
    """What is known and assumed of a number."""
    mean, spread = number.value, assumed.spread
    sets = number.samples if pair.of_samples else max(1.0, number.samples / pair.k)
    if mean in (0, 1):
        mean = abs(mean - 1 / (pair.problems + 2))  # Other problems or answers could differ.
    elif number.se is not None and sets > 1:
        spread = (published.spread_of_error(mean, number.se, pair.problems, sets),) * 3
    return PublishedArm(mean, pair.problems, sets, spread, number.seeds, number.sd)


def _impossible(number: PublishedNumber, pair: PublishedPair) -> Iterator[str]:
    """Sentences on what cannot be in a number."""
    value, unit, samples = number.value, pair.unit, number.samples
    runs = pair.problems * number.seeds
    if pair.of_samples and not published.is_share(value, runs * samples, unit):
        counts = f"{pair.problems} problems x {samples} samples x {number.seeds} runs"
        yield f"{value:.6g} is not a number of correct samples out of {runs * samples} ({counts})"
    if pair.metric == f"pass@{samples}" and samples > 1 and not published.is_share(value, runs, unit):
        text = f"{pair.metric} {value:.6g} is no multiple of 1/{runs}, so it is not the share of problems with a right"
        yield f"{text} sample; best@{samples}, drawn with replacement, can have this value"
    if number.se is not None:
        high = math.sqrt(value * (1 - value) / (pair.problems - 1))
        # One sample per problem leaves no choice.
        low = high * math.sqrt(1 - 1 / pair.problems) if pair.of_samples and samples == 1 else 0.0
        if not low - unit <= number.se <= high + unit:
            yield f"a standard error of {number.se:.4g} is not in {low:.4g} to {high:.4g}, as this mean allows"
    if value in (0, 1):
        yield f"a mean of {value:g} shows no variance; that of one problem in {pair.problems + 2} is taken"


def _lacking(difference: float, error: Callable[..., tuple[float, float]]) -> str:
    """The terms whose range alone decides if there is a difference; if no term does, all that change its error."""
    deciding, unknown = [], []
    for name, term in TERMS.items():
        best, worst = (error("trainings", case, only=name) for case in ("best", "worst"))
        low, high = (Student(0.0, *end, LEAST).interval().high for end in (best, worst))
        unknown += [term] * (low < high)
        deciding += [term] * (low < abs(difference) <= high)
    return "; ".join(deciding or unknown)
