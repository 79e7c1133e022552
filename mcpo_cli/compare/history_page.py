"""The page of a new run against a history of runs: is it within what earlier runs of the same settings do?"""

import math
from collections.abc import Sequence

from mcpo_cli.compare.comparison import Comparison
from mcpo_cli.compare.equal_cost import AVERAGE, shown
from mcpo_cli.render.markup import Columns, Grid, share, short_p, signed
from mcpo_cli.render.product import Row


def place(row: Row, comparison: Comparison) -> str:
    """`above`, `below` or `within` the range of the history, or `not testable`; whatever margin there is."""
    if row["verdict"] == "not testable":
        return "not testable"
    if not row["p_adjusted"] <= comparison.level:
        return "within"
    return "above" if row["difference"] > 0 else "below"


def expected(row: Row) -> str:
    """Where further runs of the history's kind are expected."""
    if math.isnan(row["low"]):
        return "-"
    return f"[{share(row['mean'] - row['high'])}, {share(row['mean'] - row['low'])}]"


def sentences(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """`new is below what 8 earlier runs do on gsm8k (.381, expected [.402, .455]); within it on their mean (...).`"""
    lines = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        arm_rows = [row for row in rows if row["arm"] == arm]
        parts: list[str] = []
        for word in dict.fromkeys(place(row, comparison) for row in arm_rows):
            places = [
                f"{'their mean' if row['benchmark'] == AVERAGE else row['benchmark']} "
                f"({share(row['mean'])}, expected {expected(row)})"
                for row in arm_rows
                if place(row, comparison) == word
            ]
            parts.append(f"{word} {'' if parts else _runs(word, arm_rows[0]['seeds'])}on {', '.join(places)}")
        lines.append(f"{arm} is {'; '.join(parts)}.")
    return lines


def _runs(word: str, number: int) -> str:
    return "against so few runs " if word == "not testable" else f"what {number} earlier runs do "


def grid(comparison: Comparison, rows: Sequence[Row]) -> Grid:
    """The new run's score beside the range of the history; with a margin also the verdict."""
    several = len({row["metric"] for row in rows}) > 1
    columns: Columns = {
        "benchmark": lambda row: shown(row["benchmark"]),
        "run": "arm",
        **({"metric": "metric"} if several else {}),
        "earlier mean": lambda row: share(row["baseline_mean"]),
        "expected": expected,
        "score": lambda row: share(row["mean"]),
        "change": lambda row: signed(row["difference"]),
        "p": lambda row: short_p(row["p_adjusted"]),
        "place": lambda row: place(row, comparison),
        **({"verdict": "verdict"} if comparison.margin else {}),
        "detects": lambda row: share(row["detectable"]),
    }
    return Grid.of("New runs and the history", rows, columns, labels=2 + several)


def remarks(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """The meaning of the columns, and the reasons why a row has no test."""
    reasons = dict.fromkeys(row["why"] for row in rows if row["why"])
    level, runs = f"{100 * (1 - comparison.level):.3g} %", rows[0]["seeds"]
    return [
        *reasons,
        f"expected: where {level} of further runs like the {runs} earlier ones are, on these problems (Student's "
        "prediction interval over runs); p: of a run that far away, adjusted over all rows of its kind; within does "
        "not mean equal",
        "detects: the smallest change of one run that this history finds with probability .8",
    ]
