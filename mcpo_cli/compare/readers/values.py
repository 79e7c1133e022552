"""Tables of runs without problems: one value a row (long), or one column for each benchmark (wide).

| table | columns                                                                                            |
|-------|----------------------------------------------------------------------------------------------------|
| long  | one of VALUES, or `--columns correct=NAME`; optional: model, seed, benchmark                       |
| wide  | each other column of numbers is a benchmark; optional: model, seed                                 |

Without a column `seed` each row is a run of its own, paired with none of another model.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.compare.log import WHOLE, Log, check_headings, checked
from mcpo_cli.compare.readers import cells
from mcpo_cli.compare.readers.columns import Options, refuse_lacking
from mcpo_cli.data import tables
from mcpo_cli.errors import bad_data, nearest

VALUES = ("correct", "value", "score")
"""Names of the column of values in a long table."""
ROLES = ("model", "seed", "benchmark")
COUNTERS = (
    *("step", "global_step", "epoch", "iteration", "index", "id", "run", "run_id", "name", "lr", "learning_rate"),
    *("time", "timestamp", "date", "mean", "average", "avg"),
)
"""Columns of a wide table that are no benchmarks, in any case and number (`Steps`): they count, or are means."""


def read(path: Path, known: Sequence[str], options: Options) -> list[Log]:
    """The logs of a table of runs, one for each model. known: the table's columns.

    Raises:
        ConfigError: it has no values, a value is no number, or a run has two of them.
    """
    roles = {name: column for name in ROLES if (column := options.column(name, known)) in known}
    refuse_lacking(path, known, options)
    value = next((column for name in VALUES if (column := options.column(name, known)) in known), "")
    columns = tables.columns(path, [value, *roles.values()] if value else known)
    numbers = {value: cells.numbers(columns[value])} if value else _benchmarks(columns, roles)
    names = {name: list(map(cells.name, columns[column])) for name, column in roles.items()}
    if not known:
        raise bad_data(f"{path}: there are no rows in it")
    if not numbers:
        raise bad_data(
            f"{path}: no column names problems, and none has the values of runs; its columns are {', '.join(known)}",
            fix="name the column of problems or of values: --columns problem=NAME, or --columns correct=NAME",
        )
    frame = pd.concat([_long(values, name, names, value, options) for name, values in numbers.items()])
    if options.benchmark and "benchmark" in frame and options.benchmark in set(frame["benchmark"]):
        frame = frame[frame["benchmark"] == options.benchmark]
    elif options.benchmark and not value:
        raise bad_data(f"{path}: it has no benchmark {options.benchmark!r}: {nearest(options.benchmark, numbers)}")
    sentence = f"{path} has no problems, so each of its values is one run"
    notes = [sentence if value else f"{sentence}; benchmarks are its columns of numbers: {', '.join(numbers)}"]
    gaps = {name: list(values).count(None) for name, values in numbers.items()} if not value else {}
    notes += [
        f"{path}: {of_name} of {len(columns[name])} rows have no {name}, and were left out of it"
        for name, of_name in gaps.items()
        if of_name
    ]
    return list(_logs(path, frame.reset_index(drop=True), notes, keep_empty=bool(value)))


def _benchmarks(columns: Mapping[str, Sequence[Any]], roles: Mapping[str, str]) -> dict[str, Sequence[Any]]:
    """The columns of a wide table that hold numbers alone, and cells without one (None)."""
    candidates = {name: cells.numbers(values) for name, values in columns.items() if name not in roles.values()}
    return {
        name: values
        for name, values in candidates.items()
        if name
        and not {name.casefold(), name.casefold().removesuffix("s")} & set(COUNTERS)
        and any(isinstance(value, float) for value in values)
        and all(value is None or isinstance(value, float) for value in values)
    }


def _long(
    values: Sequence[Any], name: str, names: Mapping[str, list[str]], value: str, options: Options
) -> pd.DataFrame:
    frame = pd.DataFrame({"correct": values, **names})
    if not value:
        frame["benchmark"] = name
    elif "benchmark" not in frame:
        frame["benchmark"] = options.benchmark or name
    return frame


def _logs(path: Path, frame: pd.DataFrame, notes: Sequence[str], *, keep_empty: bool) -> Iterator[Log]:
    models = frame.groupby("model", sort=False) if "model" in frame else [("", frame)]
    check_headings(path, "model", [str(model) for model, _ in models])
    for model, rows in models:
        of_model = rows.drop(columns="model", errors="ignore").assign(problem=WHOLE)
        if "seed" in of_model and (twice := of_model[of_model.duplicated(["benchmark", "seed"])]).size:
            first = twice.iloc[0]
            raise bad_data(
                f"{path}: {str(model) or 'it'} has two values of {first['benchmark']} for seed {first['seed']}",
                fix="keep one row for each run, such as its last step, or name its seeds: --columns seed=NAME",
            )
        if "seed" not in of_model:
            number = of_model.groupby("benchmark").cumcount() + 1
            of_model["seed"] = [f"{path.name} {model} row {at}" for at in number]
        table = of_model if keep_empty else of_model.dropna(subset=["correct"])
        yield checked(path / str(model) if model else path, table, model=str(model), notes=notes)
