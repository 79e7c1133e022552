"""Gold answers as text: one answer, or several of which each is correct, as a list in JSON.

A list means this in the data of lm-eval, inspect, SQuAD, Skywork-OR1 (there as a text) and in math-verify. A problem
whose answer is several values at once has them in one text: `3, 5`.
"""

import ast
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any


def any_of(golds: Iterable[str]) -> str:
    """The gold of a problem to which each of `golds` is a correct answer; a single gold stays as it is."""
    answers = list(dict.fromkeys(golds))
    return json.dumps(answers, ensure_ascii=False) if len(answers) > 1 else "".join(answers)


def of_cell(cell: Any, text: Callable[[Any], str]) -> str | None:
    """The gold in a cell of somebody's file, None if it is empty; text: makes a text of a value that is no list."""
    if cell is None:
        return None
    return any_of(map(text, cell)) if isinstance(cell, list | tuple) else text(cell)


def alternatives(gold: str) -> list[str]:
    """The answers, each of them correct: the texts of a list in JSON (or in Python, as in CSV), or `gold` alone."""
    # A list without quotes, such as `[1, 2]`, is an interval or a vector.
    if gold.startswith(('["', "['")):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            answers = json.loads(gold) if gold[1] == '"' else ast.literal_eval(gold)
            if all(isinstance(text, str) for text in answers):
                return list(answers)
    return [gold]
