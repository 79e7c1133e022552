"""Cells of rows as the samples need them: texts, names of problems, numbers, and the settings that a file states."""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from mcpo_cli.data import tables

Row = Mapping[str, Any]
Field = str | Callable[[Row], Any]
"""Where a row has a column: a path such as `doc.question`, or a function of the row."""
WORDS = {
    "true": 1.0, "yes": 1.0, "pass": 1.0, "passed": 1.0, "correct": 1.0, "right": 1.0, "c": 1.0, "p": 0.5,
    "false": 0.0, "no": 0.0, "fail": 0.0, "failed": 0.0, "incorrect": 0.0, "wrong": 0.0, "i": 0.0, "n": 0.0,
}  # fmt: skip
"""Scores that are words, in any case; single letters are inspect_ai's."""


def digest(text: Any) -> str:
    """A short name for a problem that a log does not name: a hash of its text."""
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def cell(row: Row, path: str) -> Any:
    """The cell of a row at a path such as `doc.question`; for lm-eval also `question` alone. None if absent."""
    if path in row:
        return row[path]
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    document = row.get("doc")
    return document.get(path) if value is None and isinstance(document, Mapping) else value


def clean(value: Any) -> Any:
    """A text without halves of surrogate pairs: JSON may hold them where a response was cut, tables may not."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and not value.isascii() else value


def name(value: Any) -> str:
    """A name as text: 1 and 1.0 are one name, `1` and `01` are two. A value with parts is named by a hash of them."""
    try:
        return str(value) if isinstance(value, bool) else tables.text(value)
    except ValueError:
        return digest(text(value)) if isinstance(value, Mapping | list) else clean(str(value))


def numbers(cells: Sequence[Any]) -> Any:
    """Scores as an array of numbers; a score may also be a word of WORDS, or a share such as `63.4%`.

    If a cell is none of these, the array holds objects, and this cell as it is.
    """
    try:
        if set(map(type, cells)) <= {int, float}:
            return np.array(cells, dtype=np.float64)
        series = pd.to_numeric(pd.Series(list(cells), dtype=object), errors="coerce")
    except OverflowError:  # an integer too large for a float, which is no score
        return numbers(
            [math.inf if isinstance(cell, int) and abs(cell) > sys.float_info.max else cell for cell in cells]
        )
    if not series.isna().any():
        return series.to_numpy(np.float64)
    words = {word: _word(word) for word in set(map(str, cells))}
    mixed = [
        float(number) if not pd.isna(number) else None if cell is None else words[str(cell)]
        for cell, number in zip(cells, series, strict=True)
    ]
    return np.array(mixed, dtype=np.float64 if all(isinstance(value, float) for value in mixed) else object)


def _word(word: str) -> float | str:
    text = word.strip().lower()
    with suppress(ValueError):
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else WORDS.get(text, word)
    return word


def text(value: Any) -> str:
    """A prompt or response as text; chat turns are joined by line breaks."""
    if isinstance(value, Mapping):
        return text(value.get("content", value.get("text", "")))
    if isinstance(value, list | tuple):
        return "\n".join(map(text, value))
    return str(value)


def first_text(nested: Any) -> str:
    """The first text in nested lists; an option's log-probability stays as it is written."""
    while isinstance(nested, list | tuple) and nested:
        nested = nested[0]
    return str(nested)


def stated(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts that a log states, as text."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True) for name, value in facts.items()
    }
    return {name: value for name, value in texts.items() if value not in ("", "null", "{}", "[]")}


def numbers_in(rows: Iterable[Row], without: Collection[str] = ()) -> list[str]:
    """The names of the cells that are numbers in some row, except for names in `without`."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, int | float))
    return [name for name in names if name not in without]
