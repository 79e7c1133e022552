"""Numbers and captions as text, for tables and figures."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcpo_cli.statistics import power


def number(value: float, form: str = ".3f") -> str:
    """`value` in this format, or `-` where it is not known."""
    return "-" if math.isnan(value) else f"{value:{form}}"


def p_value(value: float) -> str:
    """`0.0312`, or `-` where there is no test."""
    return number(value, ".4f")


def count(seeds: int | None) -> str:
    """A number of seeds, as `power.seeds_needed` gives it."""
    return f">{power.MOST_SEEDS}" if seeds is None else str(seeds)


def change(mean: float, half_width: float, digits: int = 3) -> str:
    """`+0.031 ± 0.020`, or the mean alone where it has no interval."""
    return f"{mean:+.{digits}f}" + ("" if math.isnan(half_width) else f" ± {half_width:.{digits}f}")


def columns(name: str, value: float, low: float, high: float) -> dict[str, float]:
    """A value and its interval as columns of a row."""
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def bounded(name: str, form: str = ".3f") -> Callable[[Mapping[str, Any]], str]:
    """The text of such columns of a row: `1.250 [1.100, 1.400]`, without the interval if it is NaN; `-` if missing."""

    def text(row: Mapping[str, Any]) -> str:
        if name not in row:
            return "-"
        value, low, high = (row[f"{name}{bound}"] for bound in ("", "_low", "_high"))
        return f"{value:{form}}" + ("" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]")

    return text


def share(value: float, low: float, high: float) -> str:
    """`0.412 [.381, .443]`, or the value alone where there are too few seeds for an interval; `-` where it is NaN."""
    if math.isnan(low):
        return number(value)
    bounds = ", ".join(f"{bound:.3f}".replace("0.", ".", 1) for bound in (low, high))
    return f"{value:.3f} [{bounds}]"


def caption(head: str, parts: Iterable[str]) -> str:
    """`head: part; part.`"""
    return f"{head}: {'; '.join(parts)}."
