"""The type of a reader of other tools' logs, and helpers that readers share: rows, names of scores, errors of files."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from mcpo_cli.compare.log import Log
from mcpo_cli.errors import ConfigError, bad_data, nearest, similar

Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """Facts about a log that a user adds."""

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names in the file by the names of `results.log`: correct=exact_match, problem=doc_id, ...

    If a name has several, as for logs of several tools, the first that a file has is read.
    """
    benchmark: str = ""
    """The only benchmark to read, or its name for a file that gives none."""

    def column(self, name: str, known: Collection[str]) -> str:
        """The name of a column in a file with the columns `known`."""
        return next((one for one in self.columns.get(name, ()) if one in known), name)

    def lacking(self, name: str, known: Collection[str]) -> str:
        """The name that the user gave to a column, if it is not one of the columns `known`; else empty."""
        asked = self.columns.get(name, ())
        return "" if any(one in known for one in asked) else "".join(asked[:1])

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


def damaged(path: Path, why: object) -> ConfigError:
    """The error of a file whose content does not fit its name."""
    return bad_data(f"{path}: cannot be read: {why}", fix="write the log again with the tool that it comes from")


def digest(text: Any) -> str:
    """A short name for a problem that a log does not name: a hash of its text."""
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def files_named(path: Path, pattern: str, name: re.Pattern[str]) -> list[Path]:
    """The file `path`, or those below it that match the glob `pattern`, if the whole name matches `name`."""
    found = [path] if path.is_file() else sorted(path.rglob(pattern))
    return [file for file in found if name.fullmatch(file.name)]


def newest_of_tasks(
    files: Iterable[Path], name: re.Pattern[str], folder: Callable[[Path], Path]
) -> dict[Path, dict[str, Path]]:
    """By the folder of a model: the newest file of each task. name: of files, with the group `task` before the date."""
    found: dict[Path, dict[str, Path]] = {}
    for file in files:
        if named := name.fullmatch(file.name):
            tasks = found.setdefault(folder(file), {})
            tasks[named["task"]] = max(tasks.get(named["task"], file), file, key=lambda one: one.name)
    return found


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


def json_lines(path: Path, needed: Iterable[str]) -> list[Row]:
    """The rows of a JSON lines file, which must have the keys `needed`.

    Raises:
        ConfigError: a line is damaged, the file has no rows, or a row lacks a key.
    """
    try:
        rows = [_json(line) for line in path.read_bytes().splitlines()]
    except (ValueError, OSError) as error:
        raise damaged(path, error) from error
    if not rows:
        raise damaged(path, "there are no rows in it")
    if not all(isinstance(row, dict) for row in rows):
        raise damaged(path, "one of its lines is no JSON object")
    for name in needed:
        if at := next((at for at, row in enumerate(rows, 1) if name not in row), 0):
            raise damaged(path, f"line {at} lacks {name!r}, which the versions that are read have")
    return rows


def _json(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:
        # Python's tools write NaN, which is not JSON: a score of NaN gets its own message. They also write half of a
        # surrogate pair, where a response was cut within a character; tables cannot hold such text.
        plain = json.dumps(json.loads(line), ensure_ascii=False)
        return json.loads(plain.encode("utf-8", "replace"))


def first_row(path: Path) -> Row:
    """The first row of a JSON lines file, to recognise the tool; empty if the file has none."""
    try:
        with path.open("rb") as file:
            row = _json(file.readline())
    except (ValueError, OSError):
        return {}
    return row if isinstance(row, dict) else {}


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
        fix="name one whose values are 0 and 1, or between them: --columns correct=NAME",
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


def text(value: Any) -> str:
    """A prompt or response as text; chat turns are joined by line breaks."""
    if isinstance(value, dict):
        return text(value.get("content", value.get("text", "")))
    if isinstance(value, list | tuple):
        return "\n".join(map(text, value))
    return str(value)


def prompts(samples: pd.DataFrame) -> str:
    """A hash of the prompts of all problems (columns problem and prompt), which shows prompts that differ."""
    pairs = samples[["problem", "prompt"]].drop_duplicates().sort_values(["problem", "prompt"])
    return digest(pairs.to_numpy().tolist())[:8]


def stated(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts that a log states, as text."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True) for name, value in facts.items()
    }
    return {name: value for name, value in texts.items() if value not in ("", "null", "{}", "[]")}
