"""A table of samples: CSV, JSON or Parquet with the columns problem and correct, and optional columns; or of runs."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from mcpo_cli.compare.log import GROUPS, NAMES, NEEDED, OPTIONAL, TEXTS, Log, check_headings, checked
from mcpo_cli.compare.readers import cells, guess, values
from mcpo_cli.compare.readers.base import Reader, only
from mcpo_cli.compare.readers.columns import Options, refuse_lacking
from mcpo_cli.data import tables
from mcpo_cli.errors import bad_data

_name = lru_cache(maxsize=2**16, typed=True)(cells.name)
"""The parts of a table, which are read one after the other, have the same names."""
OWN = ("model", *NEEDED, *OPTIONAL)
"""Columns that are read; others are left out."""
FEW = ("model", "sample", *NAMES, *GROUPS)
"""Columns of few names: many rows have the same name."""


def read(path: Path, options: Options) -> list[Log]:
    """The logs of a table: one for each value of its column `model`, if it has one.

    Raises:
        ConfigError: it is damaged, lacks a column, or names a sample twice.
    """
    heading = tables.heading(path)
    if options.column("problem", heading) not in heading and not options.columns.get("problem"):
        _refuse_samples(path, heading, options)
        return values.read(path, heading, options)
    samples = _samples(path, _columns(path, heading, options))
    if "benchmark" not in samples:
        samples["benchmark"] = pd.Categorical([options.benchmark or "results"]).repeat(len(samples))
    elif options.benchmark:
        samples = only(path, samples, options.benchmark)
    if "model" not in samples:
        return [checked(path, samples)]
    if samples["model"].isna().any():
        raise bad_data(f"{path}: the column model is empty in some rows", fix="fill it in, or leave it out")
    check_headings(path, "model", samples["model"].astype(str).unique())
    return [
        checked(path / str(model), of_model.drop(columns="model"), model=str(model))
        for model, of_model in samples.groupby("model", sort=False, observed=True)
    ]


def _refuse_samples(path: Path, known: Sequence[str], options: Options) -> None:
    """Raise ConfigError if a table without a column `problem` is probably a table of samples with renamed columns."""
    guessed = guess.columns(path, known)
    if not guessed.of_samples or ("correct" in options.columns and not guessed.of_problem):
        return
    has_score = options.column("correct", known) in known
    names = {"problem": guessed.problem} | ({} if has_score else {"correct": guessed.correct or "NAME"})
    raise bad_data(
        f"{path} has no {'column problem' if has_score else 'columns problem and correct'}; it has: {', '.join(known)}",
        fix=options.mended(known, names),
    )


def _columns(path: Path, known: Sequence[str], options: Options) -> dict[str, str]:
    """By our name: the column of the file, which several names may share.

    Raises:
        ConfigError: the file lacks a column that a comparison needs, or that the user names.
    """
    refuse_lacking(path, known, options)
    columns = {name: column for name in OWN if (column := options.column(name, known)) in known}
    if "correct" not in columns:
        raise bad_data(
            f"{path}: it has no column 'correct'; its columns are {', '.join(known)}",
            fix=options.mended(known, {"correct": guess.columns(path, known).correct or "NAME"}),
        )
    return columns


def _samples(path: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    """The columns by our names; names are categories, because a table may have millions of rows."""
    parts: dict[str, list[Any]] = {name: [] for name in columns}
    for batch in tables.batches(path, dict.fromkeys(columns.values())):
        values_of = {column: list(values) for column, values in batch.items()}
        for name, column in columns.items():
            parts[name].append(_converted(name, values_of[column]))
    arrays: dict[str, Any] = {}
    for name, chunks in parts.items():
        if name in FEW:
            arrays[name] = union_categoricals(chunks) if chunks else pd.Categorical([])
        else:
            arrays[name] = pd.Series(np.concatenate(chunks) if chunks else [])
    return pd.DataFrame(arrays)


def _converted(name: str, column: Sequence[Any]) -> Any:
    if name in FEW:
        return _categories(column)
    if name in TEXTS:
        return np.array([None if value is None else cells.clean(cells.text(value)) for value in column], dtype=object)
    return cells.numbers(column)


def _categories(column: Sequence[Any]) -> Any:
    """Names as texts: a name is never a number, so `1` and `01` are two, and 1 and 1.0 one."""
    # Cells of one type are equal where their names are, so that each distinct one is named once.
    of_one_type = set(map(type, column)) - {type(None)} in ({str}, {int})
    texts = column if of_one_type else [None if value is None else cells.name(value) for value in column]
    code_N, distinct = pd.factorize(np.array(texts, dtype=object))
    names = [None if value == "" else _name(value) for value in distinct]
    code_D, labels = pd.factorize(np.array(names, dtype=object))
    return pd.Categorical.from_codes(np.append(code_D, -1)[code_N], pd.Index([*map(str, labels)], dtype=object))


READER = Reader(
    name="table",
    about="a CSV, JSON or Parquet file with columns problem and correct (and model, seed, sample, response, ...)",
    recognises=lambda path: path.is_file() and bool(tables.suffix(path.name)),
    read=read,
    general=True,
)
