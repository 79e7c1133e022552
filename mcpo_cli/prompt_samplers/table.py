"""A sampler's memory of problems: one row each, by the problem's number, in the order in which they came."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from mcpo_cli.prompt_samplers.base import State

Row = TypeVar("Row", bound=NamedTuple)
NUMBER = "number"
"""The column of the problems' numbers; the fields of a row are the other columns."""


def read(state: State, row: type[Row]) -> dict[int, Row]:
    """The rows that `write` wrote; an empty dict for the empty state before the first step."""
    if not state:
        return {}
    columns = [state[name] for name in row._fields]
    make: Any = row
    return {int(number): make(*values) for number, *values in zip(state[NUMBER], *columns, strict=True)}


def write(rows: Mapping[int, Row], row: type[Row]) -> dict[str, list[float]]:
    """The rows as a state."""
    state: dict[str, list[float]] = {NUMBER: list(rows)}
    return state | {name: [values[index] for values in rows.values()] for index, name in enumerate(row._fields)}
