"""The meaning of the columns of a comparison's table: which intervals, which p-values, what is detected."""

from collections.abc import Sequence

from mcpo_cli.compare.comparison import Comparison, records
from mcpo_cli.compare.equal_cost import AVERAGE
from mcpo_cli.render.product import Row
from mcpo_cli.statistics.power import ALPHA

MEANS, BENCHMARKS = ("mean", "means"), ("benchmark", "benchmarks")
FAMILIES = {
    "headline": ("headline difference", "headline differences"),
    "others": ("other difference", "other differences"),
    "categories": ("category", "categories"),
}
"""The tests that are corrected together, with the words for one test and for several."""


def legend(comparison: Comparison) -> list[str]:
    """A sentence on intervals and p-values, and one on what is detected; none where nothing is compared."""
    differences = comparison.differences
    if differences.empty:
        return []
    look = "" if comparison.level == ALPHA else f"; p decides below {comparison.level:.3g}, the level of this look"
    rows_of = {family: records(differences, family=family) for family in FAMILIES}
    families = [_family(family, rows) for family, rows in rows_of.items() if rows]
    note = " (each family at level .05)" if len(families) > 1 and not look else ""
    tests = " (of the test that gives the verdict)" if comparison.margin else ""
    corrected = f"; p-values{tests} need no correction: there is one difference"
    if differences["test"].nunique() > 1:
        names = ", and over ".join(families)
        corrected = f", not corrected for several differences; p-values{tests} are: over {names}{note}"
    return [
        f"intervals: {100 * (1 - comparison.level):.3g} %{corrected}{look}",
        "detects: the smallest difference that this design finds with probability .8",
    ]


def _family(family: str, rows: Sequence[Row]) -> str:
    """The differences that are corrected together: `the mean alone`, `the 2 benchmarks together`."""
    benchmarks, tests = {row["benchmark"] for row in rows}, len({row["test"] for row in rows})
    singular, plural = FAMILIES[family]
    if benchmarks == {AVERAGE}:
        singular, plural = MEANS
    elif family == "others" and len(benchmarks - {AVERAGE}) == tests > 1:
        singular, plural = BENCHMARKS
    return f"the {singular} alone" if tests == 1 else f"the {tests:,} {plural} together"
