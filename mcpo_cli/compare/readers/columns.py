"""Which column of a file is which of ours, as a user says with `--columns`; and the error for a missing column."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcpo_cli.compare.readers import guess
from mcpo_cli.errors import ConfigError, nearest, similar


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
        if choice := next((column for column in self.columns.get(name, ()) if column in known), ""):
            return choice
        matches = [column for column in known if column.casefold() == name]
        return matches[0] if name not in known and len(matches) == 1 else name

    def lacking(self, name: str, known: Collection[str]) -> str:
        """The name that the user gave to a column, if it is not one of the columns `known`; else empty."""
        names = self.columns.get(name, ())
        return "" if any(column in known for column in names) else "".join(names[:1])

    def without(self, name: str) -> "Options":
        """The options for a file that has none of the columns that the user gives to `name`."""
        return replace(self, columns={key: columns for key, columns in self.columns.items() if key != name})

    def mended(self, known: Collection[str], guessed: Mapping[str, str] | None = None) -> str:
        """The option `--columns` for a file with the columns `known`: they take the place of names that the file lacks.

        guessed: by our name, columns that are probably meant.
        """
        guesses = guessed or {}
        columns = dict(self.columns)
        for name in {**guesses, **columns}:
            choice = self.lacking(name, known)
            if choice or name not in columns:
                default = name if name in known else "NAME"
                columns[name] = [similar(choice, known) or guesses.get(name, default)]
        pairs = ",".join(f"{name}={column}" for name, names in columns.items() for column in names)
        return f"--columns {shlex.quote(pairs)}"


class LacksColumn(ConfigError):
    """A file lacks a column that the user names, or has no score that is known to say whether a response is correct."""

    name: str = "correct"
    """Our name of the column."""


def lacks(path: Path, name: str, known: Collection[str], options: Options, guessed: Mapping[str, str]) -> LacksColumn:
    """The error of a file with the columns `known` that lacks the column which the user gives to `name`."""
    choice = options.columns[name][0]
    error = LacksColumn(
        f"{path}: it has no column {choice!r}: {nearest(choice, known)}",
        fix=options.mended(known, {key: guessed[key] for key in options.columns if key in guessed}),
        code="bad_data",
    )
    error.name = name
    return error


def refuse_lacking(path: Path, known: Sequence[str], options: Options) -> None:
    """Raise LacksColumn if a table with the columns `known` lacks a column that the user names."""
    for name in options.columns:
        if options.lacking(name, known):
            raise lacks(path, name, known, options, guess.columns(path, known).names())
