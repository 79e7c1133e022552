"""A table of samples: CSV, JSONL or Parquet with the columns problem and correct, and others that are optional."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import csv, json, parquet

from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.results.log import NEEDED, OPTIONAL, Log, checked
from mcpo_cli.results.readers.base import Options, Reader, damaged

KINDS = (".csv", ".jsonl", ".parquet")
OWN = ("model", "sample", *NEEDED, *OPTIONAL)
"""Columns that are read; others are left out."""


def read(path: Path, options: Options) -> list[Log]:
    """The logs of a table: one for each value of its column `model`, if it has one.

    Raises:
        ConfigError: it is damaged, lacks a column, or names a sample twice.
    """
    table = _table(path)
    names = {options.column(name): name for name in OWN if options.column(name) in table.column_names}
    for asked in options.columns.values():
        if asked not in table.column_names:
            raise ConfigError(f"{path}: it has no column {asked!r}: {nearest(asked, table.column_names)}")
    samples = table.select(list(names)).rename_columns(list(names.values())).to_pandas()
    if "benchmark" not in samples:
        samples["benchmark"] = options.benchmark or "results"
    samples["correct"] = _numbers(samples, path)
    _refuse_twice(samples, path)
    if "model" not in samples:
        return [checked(path, samples)]
    return [
        checked(path / str(model), own.drop(columns="model"))
        for model, own in samples.groupby("model", sort=False, observed=True)
    ]


def _table(path: Path) -> pa.Table:
    readers = {".csv": csv.read_csv, ".jsonl": json.read_json, ".parquet": parquet.read_table}
    try:
        table = readers[path.suffix](path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from error
    if len(set(table.column_names)) < table.num_columns:
        raise damaged(path, "it has a column twice")
    if any(map(pa.types.is_binary, table.schema.types)):
        raise damaged(path, "it is not UTF-8")
    return table


def _numbers(samples: pd.DataFrame, path: Path) -> pd.Series:
    """Scores, with truth values and the words true and false as 1 and 0."""
    if "correct" not in samples:
        raise ConfigError(
            f"{path}: it has no column 'correct'",
            fix="name the column of scores: --columns correct=NAME",
        )
    scores = samples["correct"]
    if pd.api.types.is_numeric_dtype(scores):
        return scores.astype(float)
    words = scores.astype(str).str.lower().map({"true": 1.0, "false": 0.0})
    return words.where(words.notna(), scores)


def _refuse_twice(samples: pd.DataFrame, path: Path) -> None:
    if "sample" not in samples:
        return
    keys = [name for name in ("model", "benchmark", "problem", "seed", "sample") if name in samples]
    twice = samples.duplicated(keys)
    if twice.any():
        row = samples[twice].iloc[0]
        named = ", ".join(f"{name} {row[name]}" for name in keys)
        raise ConfigError(f"{path}: it holds a sample twice: {named}", fix="leave the copies out")


READER = Reader(
    name="table",
    about="CSV, JSONL or Parquet with columns problem and correct (and model, seed, benchmark, sample, response, ...)",
    recognises=lambda path: path.is_file() and path.suffix in KINDS,
    read=read,
)
