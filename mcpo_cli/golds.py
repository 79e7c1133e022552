"""Gold answers as text: one answer, or several of which each is correct, as a list in JSON.

A list in somebody's data means this in lm-eval, inspect, SQuAD's sets, Skywork-OR1 (there as a text) and the lists of
math-verify. A problem whose answer is several values at once has them in one text: `3, 5`.
"""

import ast
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any


def any_of(golds: Iterable[str]) -> str:
    """The gold of a problem of which each of `golds` is an answer; of a single one, its text."""
    different = list(dict.fromkeys(golds))
    return json.dumps(different, ensure_ascii=False) if len(different) > 1 else "".join(different)


def of_cell(cell: Any, text: Callable[[Any], str]) -> str | None:
    """The gold in a cell of somebody's file, None if it is empty; text: makes a text of what is no list."""
    if cell is None:
        return None
    return any_of(map(text, cell)) if isinstance(cell, list | tuple) else text(cell)


def alternatives(gold: str) -> list[str]:
    """The answers of which each is correct: the texts of a list in JSON (or in Python, as in CSV), or `gold` alone."""
    # A list without quotes, such as `[1, 2]`, is an interval or a vector.
    if gold.startswith(('["', "['")):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            listed = json.loads(gold) if gold[1] == '"' else ast.literal_eval(gold)
            if all(isinstance(text, str) for text in listed):
                return list(listed)
    return [gold]
