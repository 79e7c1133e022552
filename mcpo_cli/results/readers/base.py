"""What a reader of other tools' logs is, and how it says what is wrong with a file."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpo_cli.errors import ConfigError
from mcpo_cli.results.log import Log


@dataclass(frozen=True)
class Options:
    """What a user says about a log that it does not say itself."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Names in the file by the names of `results.log`: correct=exact_match, problem=doc_id, ..."""
    benchmark: str = ""
    """Read this benchmark only, or name the only one of a file that names none."""

    def column(self, name: str) -> str:
        """The file's name of a column."""
        return self.columns.get(name, name)


@dataclass(frozen=True)
class Reader:
    """Reads the logs of one tool."""

    name: str
    about: str
    """Which files of which tool and version, in a line."""
    recognises: Callable[[Path], bool]
    """Whether a file or folder is such a log; it may look at names and at the first line."""
    read: Callable[[Path, Options], list[Log]]
    """Its logs, one for each training seed or model in it.

    Raises ConfigError: the file is damaged, or lacks what a comparison needs.
    """
    general: bool = False
    """Whether it takes files of any tool, so that every other reader that recognises one goes first."""


def damaged(path: Path, why: object) -> ConfigError:
    """The error of a file that is not what its name promises."""
    return ConfigError(f"{path}: cannot be read: {why}", fix="write the log again with the tool that it comes from")


def digest(text: Any) -> str:
    """A short name for a problem that a log does not name: a hash of its text."""
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:12]
