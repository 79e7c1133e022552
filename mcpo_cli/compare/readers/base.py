"""What readers of logs share: files of a tool, rows, the columns that a user names, scores, and the log made of them.

A reader says which files it reads, which cell of a row is which column of ours, and which settings a file states. The
rest is here: a column that a user names takes the place of the reader's, a score is chosen by name, and a benchmark
that is not asked for is not looked into.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.compare.log import Log, checked
from mcpo_cli.compare.readers.cells import Field, Row, cell, clean, stated
from mcpo_cli.compare.readers.columns import LacksColumn, Options, lacks
from mcpo_cli.data import tables
from mcpo_cli.errors import ConfigError, bad_data, nearest

MODEL_NAMES = ("model_name", "model_name_sanitized")
NO_FILTER = "none"
"""The name of the only filter of a task that asks for none."""


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
    """The samples of one benchmark of a log, with facts about them."""

    benchmark: str
    samples: pd.DataFrame
    facts: Mapping[str, str]
    task: str = ""
    """The task of which the benchmark is one of several filters."""
    notes: tuple[str, ...] = ()
    """Sentences on what the file has, and on parts of it that are not read."""


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
        list(dict.fromkeys([*notes, *(note for part in parts for note in part.notes)])),
    )


class UnknownScore(LacksColumn):
    """A file has no score that is known to say whether a response is correct."""


def damaged(path: Path, reason: object) -> ConfigError:
    """The error of a file whose content does not fit its name."""
    return bad_data(f"{path}: cannot be read: {reason}", fix="write the log again with the tool that it comes from")


def left_out(path: Path, left: int, of: int, reason: str) -> tuple[str, ...]:
    """The note on samples that are not compared, if there are any. reason: `have no score`."""
    return (f"{path}: {left} of {of} samples {reason}, and were left out",) if left else ()


def files_named(path: Path, pattern: str, name: re.Pattern[str], cells: Collection[str] = ()) -> list[Path]:
    """The file `path`, or the files below it that match the glob `pattern`, if the whole name matches `name`.

    cells: cells that the first row of a file must have; they tell the files of one tool from files of another.
    """
    files = [path] if path.is_file() else sorted(path.rglob(pattern))
    matches = [file for file in files if name.fullmatch(file.name)]
    return [file for file in matches if set(cells) <= first_row(file).keys()] if cells else matches


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


Files = Callable[[Path], list[Path]]
"""The files of a tool at a path."""
ReadParts = Callable[[TaskFile, Options], Sequence[LogPart]]
"""Reads the samples of one file, by benchmark."""
ReadLogs = Callable[[Path, Sequence[Path], Options], list[Log]]


def logs_of(files: Iterable[TaskFile]) -> Iterator[tuple[Path, str, list[TaskFile], list[str]]]:
    """The logs that files make up: a path, the model, the newest file of each task, and notes on older files.

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
            groups = dict(folders)
        else:
            groups = {_parent(list(folders)): files}
        for path, of_path in groups.items():
            left = [file for folder in {file.folder for file in of_path} for file in older[model, folder]]
            notes = [f"{file.path} was left out: a newer file has its task" for file in left]
            yield path, model, of_path, notes


def of_tasks(
    path: Path, files: Sequence[Path], options: Options, task: Callable[[Path], TaskFile], read_parts: ReadParts
) -> list[Log]:
    """The logs that files at a path make up (`logs_of`). A task without a known score is left out, if others have one.

    Raises:
        ConfigError: no file of a log has the task that was asked for.
    """
    logs = []
    for place, model, of_model, notes in logs_of(map(task, files)):
        parts: list[LogPart] = []
        errors: list[UnknownScore] = []
        for file in of_model:
            if options.benchmark in ("", file.task) or not file.task or options.benchmark.startswith(f"{file.task} ("):
                try:
                    parts += read_parts(file, options)
                except UnknownScore as error:
                    errors.append(error)
        selection = [part for part in parts if options.benchmark in ("", part.benchmark, part.task)]
        if errors and not parts:
            raise errors[0]
        if not selection:
            names = [*(part.benchmark for part in parts), *(file.task for file in of_model if file.task)]
            raise no_task(place, options, dict.fromkeys(names))
        logs.append(log(place, selection, model, [*notes, *(f"left out: {error.message}" for error in errors)]))
    return logs


def of_last_steps(path: Path, files: Sequence[Path], options: Options, task: str, parts: ReadParts) -> list[Log]:
    """The logs of folders with a file for each step: the last step of each, or the file that `path` names.

    task: the benchmark, if the user names none. A file's name ends in its step.
    """
    last: dict[Path, Path] = {}
    for file in sorted(files, key=lambda file: int(re.findall(r"\d+", file.stem)[-1])):
        last[file.parent] = file
    return [
        log(
            folder if path.is_dir() else file,
            parts(TaskFile(file, options.benchmark or task, "", folder, ""), options),
        )
        for folder, file in sorted(last.items())
    ]


def of_files(name: str, about: str, files: Files, logs: ReadLogs) -> Reader:
    """A reader of paths that have files of its tool. logs: `of_tasks` or `of_last_steps`, with their last arguments."""
    return Reader(name, about, lambda path: bool(files(path)), lambda path, options: logs(path, files(path), options))


def _parent(folders: Sequence[Path]) -> Path:
    return next(parent for parent in folders[0].parents if all(parent in folder.parents for folder in folders))


def settings_file(path: Path) -> dict[str, Any]:
    """A JSON object that a tool writes beside its samples; empty without one."""
    try:
        document = tables.parsed(path.read_bytes())
    except (ValueError, RecursionError, OSError):
        return {}
    return document if isinstance(document, dict) else {}


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
    """The first bytes of a file, to recognise the tool; empty for a folder, or if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(1 << 16)
    except OSError:
        return b""


def samples(path: Path, rows: Sequence[Row], fields: Mapping[str, Field], options: Options) -> pd.DataFrame:
    """The columns of samples: each from its field, or from the column that the user names.

    Raises:
        LacksColumn: no row has the column that the user names.
    """
    sources = dict(fields)
    for name, columns in options.columns.items():
        if name == "correct":
            continue
        if name == "model":
            raise bad_data(f"{path}: its tool names the model itself", fix="omit model from --columns")
        matches = [column for column in columns if any(cell(row, column) is not None for row in rows)]
        if not matches:
            names = [*rows[0], *(rows[0]["doc"] if isinstance(rows[0].get("doc"), Mapping) else ())]
            raise lacks(path, name, names, options, {})
        sources[name] = matches[0]
    return pd.DataFrame(
        {
            name: [clean(cell(row, field) if isinstance(field, str) else field(row)) for row in rows]
            for name, field in sources.items()
        }
    )


def score_name(path: Path, known: Sequence[str], options: Options, preferred: Iterable[str] = ()) -> str:
    """The name of the score in a file that decides whether a response is correct.

    known: names of the scores that are numbers. preferred: if the user names no score, the first of these in `known`.

    Raises:
        UnknownScore: there is no such score, or several and none is preferred.
    """
    if wanted := options.lacking("correct", known):
        raise UnknownScore(
            f"{path}: it has no score {wanted!r}: {nearest(wanted, known)}" if known else f"{path}: it has no scores",
            fix=options.mended(known) if known else None,
            code="bad_data",
        )
    names = [options.column("correct", known)] if "correct" in options.columns else []
    for name in (*names, *preferred):
        if name in known:
            return name
    raise UnknownScore(
        f"{path}: none of its scores is known to say whether a response is correct: {', '.join(known) or 'no scores'}",
        fix="name the one to compare: --columns correct=NAME; or another task: --benchmark NAME",
        code="bad_data",
    )


def parts(
    file: TaskFile,
    rows: Sequence[Row],
    known: Sequence[str],
    options: Options,
    *,
    fields: Mapping[str, Field],
    facts: Mapping[str, Any],
    preferred: Iterable[str] = (),
    value: Callable[[Row, str], Any] = cell,
    unscored: str = "",
    filters: str = "",
) -> list[LogPart]:
    """The samples of the rows of a file, by a score of `known` that `score_name` chooses.

    Args:
        fields: the field of each column but the score.
        facts: the settings of the samples.
        value: the score of a row by its name.
        unscored: says of rows without a score that they are left out (`have no score`); empty to refuse them.
        filters: the cell with the name of a row's filter of the task; each filter has a part with this name.

    Raises:
        ConfigError: see `score_name` and `samples`; or no row has a score.
    """
    score = score_name(file.path, known, options, preferred)
    scored = [row for row in rows if not unscored or str(value(row, score)) not in ("None", "nan")]
    if not scored:
        raise bad_data(f"{file.path}: none of its {len(rows)} samples has a score")
    names = list(dict.fromkeys(str(row[filters]) for row in scored)) if filters else [""]
    return [
        LogPart(
            f"{file.task} ({name})" if len(names) > 1 or name not in ("", NO_FILTER) else file.task,
            samples(
                file.path,
                [row for row in scored if not filters or str(row[filters]) == name],
                {**fields, "correct": lambda row: value(row, score)},
                options,
            ),
            stated({"metric": score, **facts}),
            file.task if filters else "",
            left_out(file.path, len(rows) - len(scored), len(rows), unscored),
        )
        for name in names
    ]


def only(path: Path, samples: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """The samples of one benchmark.

    Raises:
        ConfigError: there are no such samples.
    """
    names = samples["benchmark"].astype(str)
    if benchmark not in set(names):
        raise bad_data(f"{path}: it has no benchmark {benchmark!r}: {nearest(benchmark, names.unique())}")
    return samples[names == benchmark]
