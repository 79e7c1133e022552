"""A comparison as text: the verdict, one table, warnings, and the data that would settle undecided differences."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from mcpo_cli.analysis import render
from mcpo_cli.analysis.render import Columns, Grid, Page
from mcpo_cli.compare import verdicts
from mcpo_cli.compare.comparison import ALL, Comparison, largest_flips
from mcpo_cli.compare.verdicts import MOST_NAMED, signed
from mcpo_cli.statistics.power import ALPHA

MOST_FLIPS = 20
"""Most problems in the table of those that changed most."""
Row = Mapping[Hashable, Any]
BOUGHT = ("problems", "seeds", "samples")


def title(found: Comparison) -> str:
    """`new against base`."""
    arms = found.differences["arm"].unique()
    return f"{', '.join(arms)} against {found.baseline}"


def page(found: Comparison) -> Page:
    """All of it, for Markdown and LaTeX."""
    grids = [main_grid(found), sources_grid(found)]
    notes = [*pairing(found), *settle(found), *found.warnings, *legend(found)]
    return Page(title(found), " ".join(sentences(found)), [grid for grid in grids if grid.rows], notes)


def sentences(found: Comparison) -> list[str]:
    """The headline: the verdict on each arm."""
    return verdicts.sentences(found.differences, found.baseline)


def legend(found: Comparison) -> list[str]:
    """The meaning of the columns of `main_grid`."""
    look = "" if found.level == ALPHA else f"; p decides below {found.level:.3g}, the level of this look"
    return [
        f"interval: {100 * (1 - found.level):.3g} %, not adjusted; "
        f"p: of the verdict's test, adjusted over arms and benchmarks{look}",
        "detects: the smallest difference that this design finds with probability .8",
    ]


def main_grid(found: Comparison) -> Grid:
    """Means, difference, interval, p, verdict and detectable difference; one line per benchmark, arm and k."""
    rows, several = found.differences, len(found.differences["arm"].unique()) > 1
    labels: dict[str, Any] = {"benchmark": lambda row: "mean" if row["benchmark"] == ALL else row["benchmark"]}
    if several:
        labels["arm"] = "arm"
    if set(rows["metric"]) != {"pass@1"}:
        labels["metric"] = "metric"
    columns: Columns = {
        **labels,
        found.baseline: lambda row: share(row["baseline_mean"]),
        "arm's" if several else str(rows["arm"].iloc[0]): lambda row: share(row["mean"]),
        "change": lambda row: signed(row["difference"]),
        "interval": _interval,
        "p": lambda row: _p(deciding(row)),
        "verdict": "verdict",
        "detects": lambda row: share(row["detectable"]),
    }
    return Grid.of(f"Change from {found.baseline}", rows.to_dict("records"), columns, len(labels))


def deciding(row: Row) -> float:
    """The adjusted p-value of the test that gives the verdict."""
    names = {"equivalent": "p_equivalent_adjusted", "not worse": "p_not_worse_adjusted"}
    return float(row[names.get(row["verdict"], "p_adjusted")])


def share(value: float) -> str:
    """`.512`; `-` if it is not known."""
    return render.number(value).replace("0.", ".", 1)


def _interval(row: Row) -> str:
    return "-" if math.isnan(row["low"]) else f"[{signed(row['low'])}, {signed(row['high'])}]"


def _p(value: float) -> str:
    return "<.001" if value < 5e-4 else share(value)


def pairing(found: Comparison) -> list[str]:
    """The pairing of samples and the scope of intervals, in one sentence per design."""
    rows = found.differences[found.differences["benchmark"] != ALL].drop_duplicates(["benchmark", "arm"])
    designs: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows.to_dict("records"):
        size = " x ".join(_count(row[what], what.removesuffix("s")) for what in BOUGHT)
        designs.setdefault(_paired(row), {}).setdefault(size, {})[row["benchmark"]] = None
    return [
        f"{'; '.join(f'{_named(list(where))}: {size}' for size, where in sizes.items())}; {said}"
        for said, sizes in designs.items()
    ]


def _named(benchmarks: Sequence[str]) -> str:
    return ", ".join(benchmarks) if len(benchmarks) <= MOST_NAMED else f"{len(benchmarks)} benchmarks"


def _paired(row: Row) -> str:
    many = row["seeds"] > 1
    by = "by problem and by training seed" if row["paired_by_seed"] and many else "by problem"
    if row["over_seeds"]:
        return f"paired {by}; intervals are about other problems and other seeds"
    few = "two seeds say" if many else "one seed says"
    return f"paired {by}; intervals are about other problems, for these models: {few} nothing about others"


def _count(number: float, what: str) -> str:
    return f"{number:,.10g} {what}{'' if number == 1 else 's'}"


def _of(row: Row, found: Comparison) -> str:
    """The arm of a row, if there are several."""
    return f" ({row['arm']})" if len(found.differences["arm"].unique()) > 1 else ""


def settle(found: Comparison) -> list[str]:
    """Problems, seeds or samples that would settle undecided differences; reasons why others cannot be tested."""
    return [line for row in found.differences.to_dict("records") for line in _settled(row, found)]


def _settled(row: Row, found: Comparison) -> Iterator[str]:
    where = f"{row['benchmark']}{_of(row, found)}"
    if row["verdict"] == "not testable":
        yield f"{where} is not testable: {row['why']}"
    if row["verdict"] != "undecided" or math.isnan(row.get("detectable", math.nan)) or row["metric"] != "pass@1":
        return
    if row["effect"] < 5e-4:
        yield f"{where}: the difference seen is .000; --margin declares the smallest difference that matters"
        return
    needed = {what: row.get(f"needed_{what}", math.nan) for what in BOUGHT}
    ways = [f"{number:,.0f} {what} (now {row[what]:.4g})" for what, number in needed.items() if not pd.isna(number)]
    enough = " or ".join(ways) or "more than a million problems"
    yield f"{where}: to find a difference of {share(row['effect'])} takes {enough}, the rest as it is"


def sources_grid(found: Comparison) -> Grid:
    """Sources of the variance of each difference."""
    columns: Columns = {
        "benchmark": "benchmark",
        "arm": "arm",
        "source": "source",
        "sd": lambda row: share(row["sd"]),
        "share": lambda row: f"{row['share']:.0%}",
    }
    return Grid.of("Sources of variance of each difference", found.sources.to_dict("records"), columns, 3)


def flips_grid(found: Comparison) -> Grid:
    """The problems whose score changed most."""
    columns: Columns = {
        "benchmark": "benchmark",
        "arm": "arm",
        "problem": "problem",
        found.baseline: lambda row: share(row["baseline_score"]),
        "arm's": lambda row: share(row["score"]),
    }
    rows = largest_flips(found.flips, MOST_FLIPS).to_dict("records")
    return Grid.of(f"Problems that changed most ({len(found.flips)} changed)", rows, columns, 3)
