"""What readers of logs share: files of a tool, rows, the columns that a user names, scores, and the log made of them.

A reader says which files it reads, which cell of a row is which column of ours, and which settings a file states. The
rest is here: a column that a user names takes the place of the reader's, a score is chosen by name, and a benchmark
that is not asked for is not looked into.
"""

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mcpo_cli.compare.log import Log, checked
from mcpo_cli.data import tables
from mcpo_cli.errors import ConfigError, bad_data, nearest, similar

Row = Mapping[str, Any]
Field = str | Callable[[Row], Any]
"""Where a row has a column: a path such as `doc.question`, or a function of the row."""
WORDS = {
    "true": 1.0, "yes": 1.0, "pass": 1.0, "passed": 1.0, "correct": 1.0, "right": 1.0, "c": 1.0, "p": 0.5,
    "false": 0.0, "no": 0.0, "fail": 0.0, "failed": 0.0, "incorrect": 0.0, "wrong": 0.0, "i": 0.0, "n": 0.0,
}  # fmt: skip
"""Scores that are words, in any case; single letters are those of inspect_ai."""
MODEL_NAMES = ("model_name", "model_name_sanitized")


@dataclass(frozen=True)
class Options:
    """Facts about a log that a user adds."""

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names in the file by the names of `compare.log`: correct=exact_match, problem=doc_id, ...

    If a name has several, as for logs of several tools, the first that a file has is read.
    """
    benchmark: str = ""
    """The only benchmark to read, or its name for a file that gives none."""

    def column(self, name: str, known: Collection[str]) -> str:
        """The name of a column in a file with the columns `known`, which may be written in other cases (`Problem`)."""
        if asked := next((column for column in self.columns.get(name, ()) if column in known), ""):
            return asked
        alike = [column for column in known if column.casefold() == name]
        return alike[0] if name not in known and len(alike) == 1 else name

    def lacking(self, name: str, known: Collection[str]) -> str:
        """The name that the user gave to a column, if it is not one of the columns `known`; else empty."""
        asked = self.columns.get(name, ())
        return "" if any(column in known for column in asked) else "".join(asked[:1])

    def among(self, name: str, asked: str, known: Collection[str]) -> str:
        """The fix for a file that has no column `asked`: a second name, which this file has."""
        other = name if name in known else similar(asked, known) or "NAME"
        return f"--columns {name}={asked},{name}={other}  (each file is read by the one that it has)"


@dataclass(frozen=True)
class Reader:
    """Reads the logs of one tool."""

    name: str
    about: str
    """The files, tool and version that it reads, in one line."""
    recognises: Callable[[Path], bool]
    """Returns True if a file or folder is such a log; it may look at names and at the first line."""
    read: Callable[[Path, Options], list[Log]]
    """Its logs, one for each training seed or model in it.

    Raises ConfigError: the file is damaged, or lacks data that a comparison needs.
    """
    general: bool = False
    """True if it takes files of any tool; every other reader that recognises a file has precedence."""


@dataclass(frozen=True)
class LogPart:
    """The samples of one benchmark of a log, with what is said of them."""

    benchmark: str
    samples: pd.DataFrame
    facts: Mapping[str, str]
    task: str = ""
    """The task of which the benchmark is one of several filters."""
    notes: tuple[str, ...] = ()
    """What the file has and what is not read of it, in sentences."""


def log(path: Path, parts: Sequence[LogPart], model: str = "", notes: Sequence[str] = ()) -> Log:
    """The log of some benchmarks. Raises ConfigError as `log.checked` does."""
    frames = [
        part.samples if "benchmark" in part.samples else part.samples.assign(benchmark=part.benchmark) for part in parts
    ]
    return checked(
        path,
        pd.concat(frames, ignore_index=True),
        {part.benchmark: part.facts for part in parts},
        model,
        {part.benchmark: part.task for part in parts if part.task},
        [*notes, *(note for part in parts for note in part.notes)],
    )


def damaged(path: Path, why: object) -> ConfigError:
    """The error of a file whose content does not fit its name."""
    return bad_data(f"{path}: cannot be read: {why}", fix="write the log again with the tool that it comes from")


def left_out(path: Path, left: int, of: int, why: str) -> tuple[str, ...]:
    """The note on samples that are not compared, if there are any. why: `have no score`."""
    return (f"{path}: {left} of {of} samples {why}, and were left out",) if left else ()


def refuse_lacking(path: Path, known: Collection[str], options: Options) -> None:
    """Raise ConfigError if a table with the columns `known` lacks one that the user names."""
    for name in options.columns:
        if asked := options.lacking(name, known):
            raise bad_data(
                f"{path}: it has no column {asked!r}: {nearest(asked, known)}", fix=options.among(name, asked, known)
            )


def digest(text: Any) -> str:
    """A short name for a problem that a log does not name: a hash of its text."""
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def files_named(path: Path, pattern: str, name: re.Pattern[str], cells: Collection[str] = ()) -> list[Path]:
    """The file `path`, or those below it that match the glob `pattern`, if the whole name matches `name`.

    cells: those that the first row of a file must have, to tell the files of one tool from those of another.
    """
    found = [path] if path.is_file() else sorted(path.rglob(pattern))
    named = [file for file in found if name.fullmatch(file.name)]
    return [file for file in named if set(cells) <= first_row(file).keys()] if cells else named


@dataclass(frozen=True)
class TaskFile:
    """A file of the samples of one task, from one evaluation of one model."""

    path: Path
    task: str
    date: str
    folder: Path
    """The folder that a model, or a run of it, has for itself."""
    model: str
    """The model, if settings beside the file name it; else the name of the folder."""


def logs_of(files: Iterable[TaskFile]) -> Iterator[tuple[Path, str, list[TaskFile], list[str]]]:
    """The logs that files are of: a path, the model, the newest file of each task, and notes on the older ones.

    Folders of one model are one log if they have different tasks (MODEL/TASK/...), and training seeds if they share
    one. A folder with files of two models has a log for each.
    """
    newest: dict[tuple[str, Path, str], TaskFile] = {}
    older: dict[tuple[str, Path], list[TaskFile]] = {}
    for file in sorted(files, key=lambda file: file.date):
        before = newest.get((file.model, file.folder, file.task))
        older.setdefault((file.model, file.folder), []).extend([before] if before else [])
        newest[file.model, file.folder, file.task] = file
    models: dict[str, dict[Path, list[TaskFile]]] = {}
    for (model, folder, _), file in newest.items():
        models.setdefault(model, {}).setdefault(folder, []).append(file)
    for model, folders in models.items():
        files = [file for of_folder in folders.values() for file in of_folder]
        if len(folders) == 1 or len({file.task for file in files}) < len(files):
            chosen = dict(folders)
        else:
            chosen = {_parent(list(folders)): files}
        for path, of_path in chosen.items():
            left = [file for folder in {file.folder for file in of_path} for file in older[model, folder]]
            notes = [f"{file.path} was left out: a newer file has its task" for file in left]
            yield path, model, of_path, notes


def of_tasks(files: Iterable[TaskFile], part: Callable[[TaskFile, Options], LogPart], options: Options) -> list[Log]:
    """The logs that files are of (`logs_of`), a benchmark for each task. part: reads the samples of one file.

    Raises:
        ConfigError: no file of a log has the task that was asked for.
    """
    logs = []
    for path, model, of_model, notes in logs_of(files):
        parts = [part(file, options) for file in of_model if options.benchmark in ("", file.task)]
        if not parts:
            raise no_task(path, options, [file.task for file in of_model])
        logs.append(log(path, parts, model, notes))
    return logs


def _parent(folders: Sequence[Path]) -> Path:
    return next(parent for parent in folders[0].parents if all(parent in folder.parents for folder in folders))


def settings_file(path: Path) -> dict[str, Any]:
    """A JSON object that a tool writes beside its samples; empty without one."""
    try:
        document = tables.parsed(path.read_bytes())
    except (ValueError, RecursionError, OSError):
        return {}
    return document if isinstance(document, dict) else {}


def last_of_folders(path: Path, files: Iterable[Path], step: Callable[[Path], int]) -> list[tuple[Path, Path]]:
    """The file of the last step of each folder, and its location, for messages and the name of the seed.

    The location is the folder, or the file if `path` names it.
    """
    folders: dict[Path, Path] = {}
    for file in files:
        folders[file.parent] = max(folders.get(file.parent, file), file, key=step)
    return [(file, folder if path.is_dir() else file) for folder, file in folders.items()]


def no_task(path: Path, options: Options, tasks: Iterable[str]) -> ConfigError:
    """The error of a log that has other tasks than the one that was asked for."""
    return bad_data(f"{path}: it has no task {options.benchmark!r}: {nearest(options.benchmark, tasks)}")


def rows_of(path: Path, needed: Iterable[str]) -> list[Row]:
    """The rows of a file, which must have the keys `needed`.

    Raises:
        ConfigError: a line is damaged, the file has no rows, or a row lacks a key.
    """
    numbered = list(tables.rows(path))
    if not numbered:
        raise damaged(path, "there are no rows in it")
    for name in needed:
        if at := next((at for at, row in numbered if name not in row), 0):
            raise damaged(path, f"line {at} lacks {name!r}, which the versions that are read have")
    return [row for _, row in numbered]


def first_row(path: Path) -> Row:
    """The first row of a JSON lines file, to recognise the tool; empty if the file has none."""
    try:
        with path.open("rb") as file:
            row = tables.parsed(file.readline(tables.LONGEST_LINE))
    except (ValueError, RecursionError, OSError):
        return {}
    return row if isinstance(row, dict) else {}


def beginning(path: Path) -> bytes:
    """The first bytes of a file, to recognise the tool; none of a folder, or where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(1 << 16)
    except OSError:
        return b""


def cell(row: Row, path: str) -> Any:
    """The cell of a row at a path such as `doc.question`; of lm-eval also `question` alone. None if there is none."""
    if path in row:
        return row[path]
    found: Any = row
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    inside = row.get("doc")
    return inside.get(path) if found is None and isinstance(inside, Mapping) else found


def samples(path: Path, rows: Sequence[Row], fields: Mapping[str, Field], options: Options) -> pd.DataFrame:
    """The columns of samples: each from its field, or from the column that the user names.

    Raises:
        ConfigError: no row has the column that the user names.
    """
    chosen = dict(fields)
    for name, columns in options.columns.items():
        if name == "correct":
            continue
        if name == "model":
            raise bad_data(f"{path}: its tool names the model itself", fix="omit model from --columns")
        known = [column for column in columns if any(cell(row, column) is not None for row in rows)]
        if not known:
            names = [*rows[0], *(rows[0]["doc"] if isinstance(rows[0].get("doc"), Mapping) else ())]
            raise bad_data(
                f"{path}: it has no column {columns[0]!r}: {nearest(columns[0], names)}",
                fix=options.among(name, columns[0], names),
            )
        chosen[name] = known[0]
    return pd.DataFrame(
        {
            name: [clean(cell(row, field) if isinstance(field, str) else field(row)) for row in rows]
            for name, field in chosen.items()
        }
    )


def score_name(path: Path, known: Sequence[str], options: Options, preferred: Iterable[str] = ()) -> str:
    """The name of the score in a file that decides whether a response is correct.

    known: names of the scores that are numbers. preferred: if the user names no score, the first of these in `known`.

    Raises:
        ConfigError: there is no such score, or several and none is preferred.
    """
    if wanted := options.lacking("correct", known):
        raise bad_data(
            f"{path}: it has no score {wanted!r}: {nearest(wanted, known)}" if known else f"{path}: it has no scores",
            fix=options.among("correct", wanted, known) if known else None,
        )
    asked = [options.column("correct", known)] if "correct" in options.columns else []
    for name in (*asked, *preferred):
        if name in known:
            return name
    raise bad_data(
        f"{path}: none of its scores is known to say whether a response is correct: {', '.join(known) or 'no scores'}",
        fix="name the one to compare: --columns correct=NAME; or another task: --benchmark NAME",
    )


def only(path: Path, samples: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """The samples of one benchmark.

    Raises:
        ConfigError: there are none.
    """
    names = samples["benchmark"].astype(str)
    if benchmark not in set(names):
        raise bad_data(f"{path}: it has no benchmark {benchmark!r}: {nearest(benchmark, names.unique())}")
    return samples[names == benchmark]


def clean(value: Any) -> Any:
    """A text without halves of surrogate pairs: JSON may hold them where a response was cut, tables may not."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and not value.isascii() else value


def name(value: Any) -> str:
    """A name as text: 1 and 1.0 are one name, `1` and `01` are two. What has parts is named by a hash of them."""
    try:
        return str(value) if isinstance(value, bool) else tables.text(value)
    except ValueError:
        return digest(text(value)) if isinstance(value, Mapping | list) else clean(str(value))


def numbers(cells: Sequence[Any]) -> Any:
    """Scores as an array of numbers, also those that are words of WORDS, or shares such as `63.4%`.

    If a cell is none of these, the array holds objects, and this cell as it is.
    """
    try:
        known = pd.to_numeric(pd.Series(list(cells), dtype=object), errors="coerce")
    except OverflowError:  # an integer too large for a float, which is no score
        return numbers(
            [math.inf if isinstance(cell, int) and abs(cell) > sys.float_info.max else cell for cell in cells]
        )
    if not known.isna().any():
        return known.to_numpy(np.float64)
    words = {word: _word(word) for word in set(map(str, cells))}
    mixed = [words[str(cell)] if pd.isna(number) else float(number) for cell, number in zip(cells, known, strict=True)]
    return np.array(mixed, dtype=np.float64 if all(isinstance(each, float) for each in mixed) else object)


def _word(word: str) -> float | str:
    plain = word.strip().lower()
    with suppress(ValueError):
        return float(plain.removesuffix("%")) / 100 if plain.endswith("%") else WORDS.get(plain, word)
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
