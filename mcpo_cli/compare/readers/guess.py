"""Which columns of a table are probably its problems and its scores, by their names and their first cells.

Nothing is read by a guess: it decides whether a table without a column `problem` is a table of runs (`values.py`), or a
table of samples with other names of columns, and which names a fix suggests.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mcpo_cli.compare.readers import cells
from mcpo_cli.data import tables

LOOKED_AT = 1000
"""Rows that are looked at."""
OF_PROBLEMS = frozenset({"question", "problem", "doc", "document", "item", "qid", "instance"})
"""Words in names of columns that only tables of samples have."""
NAMES = OF_PROBLEMS | {"id", "idx", "index", "task", "example", "prompt", "name", "key"}
"""Words in names of columns that name problems."""
SCORES = frozenset(
    {"correct", "right", "acc", "accuracy", "pass", "passed", "solved", "success", "match", "em", "score", "reward",
     "grade", "verdict"}
)  # fmt: skip
"""Words in names of columns of scores."""
OF_RUNS = frozenset(
    {"run", "model", "seed", "benchmark", "sample", "step", "epoch", "iteration", "config", "method", "arm", "lr",
     "rate", "time", "timestamp", "date"}
)  # fmt: skip
"""Words in names of columns without problems or scores: such columns name runs, or count."""


@dataclass(frozen=True)
class Guess:
    """The probable columns of a table; empty if none is probable."""

    problem: str = ""
    correct: str = ""
    of_problem: bool = False
    """True if the name of `problem` is one that only tables of samples have."""
    is_verdict: bool = False
    """True if `correct` holds 0 and 1 alone, or words that mean them, or 0 and 100 for percent."""
    has_numbers: bool = False
    """True if other columns hold numbers alone, which may be benchmarks."""

    @property
    def of_samples(self) -> bool:
        """True if the table is one of samples: a row is a response to a problem, not a run."""
        is_scored = self.is_verdict and (bool(_words(self.correct) & SCORES) or not self.has_numbers)
        return self.of_problem or (bool(self.problem) and is_scored)

    def names(self) -> dict[str, str]:
        """By our name: the probable columns."""
        return {name: column for name, column in (("problem", self.problem), ("correct", self.correct)) if column}


def columns(path: Path, known: Sequence[str]) -> Guess:
    """The probable columns of a table with the columns `known`. Raises ConfigError as `tables.rows` does."""
    names = [
        name for name in known if name and "," not in name and known.count(name) == 1 and not _words(name) & OF_RUNS
    ]
    rows = [row for _, row in islice(tables.rows(path, names), LOOKED_AT)]
    filled = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    numbers = {name: _numbers(column) for name, column in filled.items() if column}
    verdicts = [name for name, values in numbers.items() if values is not None and _is_verdict(set(values))]
    decimals = {name for name, values in numbers.items() if values is not None and (values % 1 != 0).any()}
    candidates = [
        name
        for name, values in numbers.items()
        if name not in {*verdicts, *decimals} and _can_name(name, filled[name], len(rows))
    ]
    problem = min(candidates, key=lambda name: (-len(_words(name) & NAMES), _length(filled[name])), default="")
    of_problem = bool(_words(problem) & OF_PROBLEMS)
    scored = [name for name in (*verdicts, *sorted(decimals)) if _words(name) & SCORES]
    correct = next(iter([*scored, *verdicts]), "")
    others = {name for name, values in numbers.items() if values is not None} - {problem, *verdicts}
    return Guess(problem, correct, of_problem, correct in verdicts, bool(others))


def _words(name: str) -> set[str]:
    """The words of a name: `Question ID`, `question_id` and `questionId` have the same."""
    return set(re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", name).casefold()))


def _numbers(column: Sequence[Any]) -> Any:
    """The cells as numbers; None if a cell is no number."""
    if any(isinstance(cell, Mapping | list) for cell in column):
        return None
    values = cells.numbers(column)
    return values if values.dtype == np.float64 and np.isfinite(values).all() else None


def _is_verdict(values: set[float]) -> bool:
    return values <= {0.0, 1.0} or values == {0.0, 100.0}


def _can_name(name: str, column: Iterable[Any], rows: int) -> bool:
    """True if the cells are texts or integers that differ from row to row, or have a name that says what they are."""
    texts = [str(cell) for cell in column if isinstance(cell, str | int | float)]
    different = len(set(texts))
    return len(texts) == rows and (different == rows or (different > 1 and bool(_words(name) & NAMES)))


def _length(column: Sequence[Any]) -> float:
    return sum(len(str(cell)) for cell in column) / len(column)
