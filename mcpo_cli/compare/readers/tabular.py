"""A table of samples: CSV, JSONL or Parquet with the columns problem and correct, and optional columns."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import csv, json, parquet

from mcpo_cli.compare.log import NEEDED, OPTIONAL, Log, check_headings, checked
from mcpo_cli.compare.readers.base import Options, Reader, damaged, only, prompts
from mcpo_cli.errors import bad_data, nearest

KINDS = (".csv", ".jsonl", ".parquet")
OWN = ("model", *NEEDED, *OPTIONAL)
"""Columns that are read; others are left out."""
MOST_ROWS = 20_000_000
"""Most rows of a Parquet file: a few kilobytes may encode more equal rows than fit into memory."""
EMPTY_IS_MISSING = csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
"""Only empty cells are missing: NA and null may be names of problems."""


def read(path: Path, options: Options) -> list[Log]:
    """The logs of a table: one for each value of its column `model`, if it has one.

    Raises:
        ConfigError: it is damaged, lacks a column, or names a sample twice.
    """
    table = load(path)
    known = table.column_names
    names = {column: name for name in OWN if (column := options.column(name, known)) in known}
    for name in options.columns:
        if asked := options.lacking(name, known):
            raise bad_data(
                f"{path}: it has no column {asked!r}: {nearest(asked, known)}", fix=options.among(name, asked, known)
            )
    samples = table.select(list(names)).rename_columns(list(names.values())).to_pandas()
    if "benchmark" not in samples:
        samples["benchmark"] = options.benchmark or "results"
    elif options.benchmark:
        samples = only(path, samples, options.benchmark)
    samples["correct"] = _numbers(samples, path)
    if "model" not in samples:
        return [checked(path, samples, _facts(samples))]
    if samples["model"].isna().any():
        raise bad_data(f"{path}: the column model is empty in some rows", fix="fill it in, or leave it out")
    check_headings(path, "model", samples["model"].astype(str).unique())
    return [
        checked(path / str(model), own.drop(columns="model"), _facts(own), str(model))
        for model, own in samples.groupby("model", sort=False, observed=True)
    ]


def load(path: Path) -> pa.Table:
    """A table, read by the suffix of its name.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        match path.suffix:
            case ".csv":
                table = csv.read_csv(path, convert_options=EMPTY_IS_MISSING)
            case ".jsonl":
                table = json.read_json(path)
            case _ if (rows := parquet.read_metadata(path).num_rows) > MOST_ROWS:
                raise damaged(path, f"it says that it has {rows} rows; {MOST_ROWS} are the most")
            case _:
                table = parquet.read_table(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from error
    if len(set(table.column_names)) < table.num_columns:
        raise damaged(path, "it has a column twice")
    # Arrow reads a text that is not UTF-8 as bytes.
    if wrong := [column.name for column in table.schema if pa.types.is_binary(column.type)]:
        raise damaged(path, f"the column {wrong[0]} is not UTF-8")
    return table


def _numbers(samples: pd.DataFrame, path: Path) -> pd.Series:
    """Scores, with truth values and the words true and false as 1 and 0."""
    if "correct" not in samples:
        raise bad_data(
            f"{path}: it has no column 'correct'",
            fix="name the column of scores: --columns correct=NAME",
        )
    scores = samples["correct"]
    if pd.api.types.is_numeric_dtype(scores):
        return scores.astype(float)
    words = scores.astype(str).str.lower().map({"true": 1.0, "false": 0.0})
    return words.where(words.notna(), scores)


def _facts(samples: pd.DataFrame) -> dict[str, dict[str, str]]:
    """By benchmark: a hash of its prompts, if the table has them."""
    if "prompt" not in samples:
        return {}
    return {str(name): {"prompts": prompts(own)} for name, own in samples.groupby("benchmark", observed=True)}


READER = Reader(
    name="table",
    about="a CSV, JSONL or Parquet file with columns problem and correct (and model, seed, sample, response, ...)",
    recognises=lambda path: path.is_file() and path.suffix in KINDS,
    read=read,
    general=True,
)
