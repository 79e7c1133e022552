"""Readers of graded samples, one file per tool. A plug-in of the group `mcpo.readers` also declares READER."""

import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from mcpo_cli import plugins
from mcpo_cli.compare.log import Log
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Reader
from mcpo_cli.compare.readers.columns import LacksColumn, Options
from mcpo_cli.errors import ConfigError, bad_data, mend, nearest
from mcpo_cli.plugins import Found

__all__ = ["Options", "Reader", "read", "read_all", "readers"]
UNEXPECTED = (ValueError, TypeError, KeyError, IndexError, AttributeError, sqlite3.Error)
"""Errors of a file whose parts differ from what its tool writes, or whose texts are not UTF-8."""
TABLE = "or write a CSV with the columns problem and correct (docs/readers.md)"


@cache
def readers() -> Found[Reader]:
    """All readers by name, from this package and plug-ins. Raises ConfigError when two share a name."""
    return plugins.objects("readers", [__name__], "READER", Reader)


def read(path: Path, options: Options, reader: str = "") -> list[Log]:
    """The logs at `path`: one for each training seed or model in it. reader: its name; empty to detect the reader.

    Raises:
        ConfigError: `path` does not exist, no reader or several recognise it, or the log is not valid.
    """
    tool = _named(reader) if reader else _recognised(path)
    try:
        logs = tool.read(path, options)
    except RecursionError as error:
        raise base.damaged(path, "a value in it is nested too deeply") from error
    except UNEXPECTED as error:
        if tool.name in readers().plugins:
            raise _failed(tool, path, plugins.described(error)) from error
        raise base.damaged(path, f"{tool.name} expects other data: {plugins.described(error)}") from error
    if not isinstance(logs, list) or not all(isinstance(log, Log) for log in logs):
        raise _failed(tool, path, f"`read` returned {type(logs).__name__}, not a list of Log, such as [checked(...)]")
    if not logs:
        raise ConfigError(f"{path}: {tool.name} finds no samples in it; it reads {tool.about}", code="bad_data")
    return logs


def _failed(tool: Reader, path: Path, reason: str) -> ConfigError:
    """The error of a reader of a plug-in."""
    fix = "correct the reader (docs/readers.md#a-reader-of-your-own)"
    return ConfigError(f"{path}: the reader {tool.name} failed: {reason}", fix=fix, code="bad_function")


def read_all(paths: Iterable[Path], options: Options, reader: str = "") -> dict[Path, list[Log]]:
    """The logs at each path, see `read`.

    A file that lacks a column which the user names is read as if the user had not named it, if another file has all
    these columns: so tables of two tools can be compared by the columns of one of them. A note says so.
    """
    logs: dict[Path, list[Log]] = {}
    errors: dict[Path, LacksColumn] = {}
    for path in dict.fromkeys(paths):
        try:
            logs[path] = read(path, options, reader)
        except LacksColumn as error:
            errors[path] = error
    if errors and not logs:
        raise next(iter(errors.values()))
    return logs | {path: _without(path, first, options, reader) for path, first in errors.items()}


def _without(path: Path, error: LacksColumn, options: Options, reader: str) -> list[Log]:
    """The logs of a file that lacks columns which the user names, with a note on each. error: on the first."""
    notes = []
    while error.name in options.columns:
        names = " or ".join(map(repr, options.columns[error.name]))
        notes.append(f"{path} has no column {names}: what it has as {error.name} was read")
        options = options.without(error.name)
        try:
            return [replace(log, notes=(*log.notes, *notes)) for log in read(path, options, reader)]
        except LacksColumn as failure:
            error = failure
    raise error


def _named(name: str) -> Reader:
    if name not in readers():
        raise ConfigError(
            f"there is no reader {name!r}: {nearest(name, readers())}",
            fix=mend("--reader {}", name, readers()),
            code="unknown_name",
        )
    return readers()[name]


def _takes(reader: Reader, path: Path) -> bool:
    """True if a reader recognises a path; a plug-in that fails at it is skipped with a warning."""
    try:
        return reader.recognises(path)
    except Exception as error:
        if reader.name not in readers().plugins:
            raise
        plugins.warn(f"the reader {reader.name} failed at {path}: {plugins.described(error)}")
        return False


def _recognised(path: Path) -> Reader:
    taking = [reader for reader in readers().values() if _takes(reader, path)]
    special = [reader for reader in taking if not reader.general] or taking
    if len(special) == 1:
        return special[0]
    if special:
        names = [reader.name for reader in special]
        raise ConfigError(
            f"{path}: several readers recognise it: {', '.join(names)}", fix=f"--reader {names[0]}", code="bad_data"
        )
    if path.is_dir() and not any(file.is_file() for file in path.rglob("*")):
        raise bad_data(f"{path}: there is no file in this folder", fix="name the folder that the tool wrote")
    listing = "".join(f"\n  {reader.name}: {reader.about}" for reader in readers().values())
    reason = "" if path.exists() else "there is no such file or folder, and "
    raise ConfigError(
        f"{path}: {reason}no reader recognises it. These are read:{listing}",
        fix=f"name the folder that the tool wrote, say which tool it was (--reader NAME), {TABLE}",
        code="bad_data" if path.exists() else "not_found",
    )
