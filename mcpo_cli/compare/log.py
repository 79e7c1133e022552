"""Graded samples as every reader returns them, and the sides of a comparison that are made of them.

| word      | meaning                                                                                     |
|-----------|---------------------------------------------------------------------------------------------|
| sample    | one graded response: benchmark, problem, seed, and a score (`correct`), mostly 0 or 1        |
| log       | the samples of one file or folder, and the settings that it states of them (`facts`)         |
| side      | one arm of a comparison: the logs of its training seeds together                             |
| benchmark | a named set of problems; sides are compared benchmark by benchmark                           |
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from mcpo_cli import redaction
from mcpo_cli.compare.equal_cost import AVERAGE, shown
from mcpo_cli.compare.scores import Scores
from mcpo_cli.errors import ConfigError, bad_data

NEEDED = ("benchmark", "problem", "correct")
NAMES = ("benchmark", "problem", "seed")
TEXTS = ("response", "answer", "gold", "prompt")
WHOLE = "all"
"""The problem of a log without problems: one value of each run."""
GROUPS = ("cluster", "category")
"""Columns of a problem: what it shares with other problems, and its kind."""
OPTIONAL = ("seed", "sample", *GROUPS, *TEXTS, "tokens")
"""Columns of samples that a log may have besides NEEDED."""


@dataclass(frozen=True)
class Log:
    """The samples of one file or folder, as a reader returns them."""

    path: Path
    samples: pd.DataFrame
    """One row per sample, with the columns NEEDED and some of OPTIONAL; `correct` is a finite number."""
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By benchmark: the settings of its samples that the log states (grader, temperature, template, ...)."""
    model: str = ""
    """The model or arm that made them, if the log names it. It is not a fact, because sides differ in it."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """By benchmark, if it is one of several filters of a task: the task."""
    notes: tuple[str, ...] = ()
    """Sentences on what the log has, and on parts of it that are not read."""


@dataclass(frozen=True)
class Side:
    """One arm: the logs of its training seeds."""

    name: str
    logs: tuple[Log, ...]

    @cached_property
    def samples(self) -> pd.DataFrame:
        """The samples of all logs, with the columns `seed` and `log` (the index of a log in `logs`).

        Raises:
            ConfigError: two logs hold the same problems of the same seed.
        """
        frames = []
        for index, (log, label) in enumerate(zip(self.logs, _labels(self.logs), strict=True)):
            samples = log.samples.assign(log=index)
            frames.append(samples if "seed" in samples else samples.assign(seed=pd.Categorical([label] * len(samples))))
        table = pd.concat(frames, ignore_index=True)
        for name in NAMES:
            table[name] = union_categoricals([frame[name] for frame in frames], sort_categories=True)
        self._refuse_twice(table)
        return table

    def _refuse_twice(self, samples: pd.DataFrame) -> None:
        if len(self.logs) == 1:
            return
        cells = samples[[*NAMES, "log"]].drop_duplicates()
        twice = cells[cells.duplicated(list(NAMES))]
        if not twice.empty:
            cell = twice.iloc[0]
            raise ConfigError(
                f"{self.name}: two logs hold samples of problem {cell['problem']!r} of {cell['benchmark']} "
                f"for seed {cell['seed']}",
                fix="name each log once, or give the training seed in a column `seed`",
            )

    @cached_property
    def benchmarks(self) -> tuple[str, ...]:
        """Names of its benchmarks, in the order in which they appear."""
        return tuple(map(str, self.samples["benchmark"].unique()))

    def scores(self, benchmark: str) -> Scores:
        """Its scores on one benchmark."""
        return self._scores[benchmark]

    @cached_property
    def _scores(self) -> dict[str, Scores]:
        return {name: self._counted(name) for name in self.benchmarks}

    def _counted(self, benchmark: str) -> Scores:
        rows = self.samples[self.samples["benchmark"] == benchmark]
        seed_N, problem_N = (rows[name].cat.remove_unused_categories().cat for name in ("seed", "problem"))
        shape = (len(seed_N.categories), len(problem_N.categories))
        place_N = seed_N.codes.to_numpy(np.int64) * shape[1] + problem_N.codes.to_numpy()
        correct_N = rows["correct"].to_numpy(np.float64)
        count_SP = np.bincount(place_N, minlength=shape[0] * shape[1]).reshape(shape)
        sum_SP, square_SP = (
            np.bincount(place_N, weights, shape[0] * shape[1]).reshape(shape).astype(np.float64)
            for weights in (correct_N, correct_N**2)
        )
        seeds, problems = (tuple(map(str, codes.categories)) for codes in (seed_N, problem_N))
        groups = {name: _of_problems(rows, name, problems) for name in GROUPS}
        return Scores(
            seeds, problems, count_SP.astype(np.int64), sum_SP, square_SP,
            clusters=groups["cluster"], categories=groups["category"],
        )  # fmt: skip

    @cached_property
    def tasks(self) -> dict[str, list[str]]:
        """By task: its benchmarks, which are the filters that read it, or the task alone."""
        task_of = {name: task for log in self.logs for name, task in log.tasks.items()}
        names: dict[str, list[str]] = {}
        for name in self.benchmarks:
            names.setdefault(task_of.get(name, name), []).append(name)
        return names

    def prompts(self, benchmark: str) -> dict[str, str]:
        """The prompt of each problem, or its hash if the log states that; empty if the log has neither."""
        rows = self.samples.loc[self.samples["benchmark"] == benchmark]
        name = next((name for name in ("prompt_hash", "prompt") if name in rows and rows[name].notna().any()), "")
        if not name:
            return {}
        first = rows.drop_duplicates("problem")
        return dict(zip(first["problem"].astype(str), first[name].astype(str), strict=True))

    def facts(self, benchmark: str) -> dict[str, str]:
        """The settings of the samples of a benchmark; values that differ from log to log are listed."""
        values_of: dict[str, dict[str, None]] = {}
        for log in self.logs:
            for name, value in log.facts.get(benchmark, {}).items():
                values_of.setdefault(name, {})[value] = None
        return {name: ", ".join(values) for name, values in values_of.items()}


def _of_problems(samples: pd.DataFrame, column: str, problems: Sequence[str]) -> tuple[str, ...]:
    """By problem: the first value of a column; the problem itself where it is empty; nothing without the column."""
    if column not in samples or samples[column].isna().all():
        return ()
    first = samples.dropna(subset=[column]).drop_duplicates("problem")
    value_of = dict(zip(first["problem"].astype(str), first[column].astype(str), strict=True))
    return tuple(value_of.get(problem, problem if column == "cluster" else "none") for problem in problems)


def plain_rows(frame: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """The rows of a frame as plain data, with None for what is missing."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _labels(logs: Sequence[Log]) -> Iterator[str]:
    """A name for the training seed of each log: the part in which its path differs from the other paths."""
    paths = [str(log.path) for log in logs]
    if len(paths) == 1:
        return iter(["0"])
    start = _shared(paths)
    end = _shared([path[len(start) :][::-1] for path in paths])[::-1]
    # Numbers are kept whole: s10 and s11 are 10 and 11, not 0 and 1.
    first, last = len(start.rstrip("0123456789")), len(end.lstrip("0123456789"))
    return (path[first : len(path) - last] or "0" for path in paths)


def _shared(texts: Sequence[str]) -> str:
    """The longest common prefix of all texts."""
    columns = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in columns)


def checked(
    path: Path,
    samples: pd.DataFrame,
    facts: Mapping[str, Mapping[str, str]] | None = None,
    model: str = "",
    tasks: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Log:
    """The log, after checking that its samples have the data that a comparison needs.

    Raises:
        ConfigError: there are no samples, a column is missing, a sample has no name or the name of another, the name of
            a benchmark or the model cannot be shown, one of several benchmarks is named as their mean is, or a score is
            not a finite number.
    """
    if gaps := [name for name in NEEDED if name not in samples]:
        need, lack, there = (", ".join(map(str, names)) for names in (NEEDED, gaps, samples.columns))
        raise bad_data(f"{path}: samples need the columns {need}; missing: {lack}; there: {there}")
    if samples.empty:
        raise bad_data(f"{path}: there are no samples in it")
    keys = [name for name in (*NAMES, "sample") if name in samples]
    if nameless := [name for name in keys if samples[name].isna().any()]:
        raise bad_data(f"{path}: the column {nameless[0]} is empty in some rows", fix="fill it in, or leave it out")
    if "sample" in keys and (twice := samples[samples.duplicated(keys)]).size:
        copy = ", ".join(f"{name} {twice.iloc[0][name]}" for name in keys)
        raise bad_data(f"{path}: it holds a sample twice: {copy}", fix="leave the copies out")
    benchmarks = samples["benchmark"].astype(str).unique()
    check_headings(path, "benchmark", benchmarks)
    check_headings(path, "model", [str(model)])
    if len(benchmarks) > 1 and (means := {AVERAGE, shown(AVERAGE)} & set(benchmarks)):
        raise bad_data(
            f"{path}: a benchmark is named {min(means)}, as the mean over benchmarks is",
            fix="give it another name, leave its rows out, or compare one benchmark: --benchmark NAME",
        )
    correct = pd.to_numeric(samples["correct"], errors="coerce").astype(np.float64)
    bad = ~np.isfinite(correct)
    if bad.any():
        row = samples[bad].iloc[0]
        score = "empty" if pd.isna(row["correct"]) else f"{row['correct']}, not a number"
        raise bad_data(
            f"{path}: the score of problem {str(row['problem'])!r} is {score} ({bad.sum()} of {len(samples)} are such)",
            fix="leave out rows that were not graded, or choose a score that is a number, or a word such as true, "
            "correct, pass: --columns correct=NAME",
        )
    # Each name is kept once for all of its samples, because tables with millions of samples are common.
    names = {name: _categories(samples[name]) for name in NAMES if name in samples}
    table = samples.assign(correct=correct, **names)
    return Log(path, table, facts or {}, model, tasks or {}, tuple(notes))


def _categories(names: pd.Series) -> pd.Series:
    """Names as texts, each of them once."""
    is_done = isinstance(names.dtype, pd.CategoricalDtype) and all(
        isinstance(name, str) for name in names.cat.categories
    )
    return names if is_done else names.astype(str).astype("category")


def check_headings(path: Path, kind: str, names: Iterable[str]) -> None:
    """Raise ConfigError if a name of a benchmark or model (`kind`) cannot be a heading."""
    if wrong := redaction.unfit_heading(names):
        raise bad_data(f"{path}: the name of a {kind} cannot be shown: {wrong}", fix=redaction.HEADING_FIX)
