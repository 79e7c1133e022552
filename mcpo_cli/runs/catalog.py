"""The runs that a home holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpo_cli.config import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, McpoError, nearest
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import read_json
from mcpo_cli.store.records import State


@dataclass(frozen=True)
class Run:
    """One run on the disk. origin: suite, arm and command that first started it."""

    folder: Path
    spec: RunSpec
    origin: dict[str, Any]

    @property
    def state(self) -> State:
        """See `attempts.state`."""
        return attempts.state(self.folder, self.spec)


def runs(home: Path) -> Iterator[Run]:
    """All runs below `home`, by name. Runs whose settings this version cannot read are left out."""
    for folder in folders(home):
        try:
            yield _read(folder)
        except McpoError:
            continue


def folders(home: Path) -> list[Path]:
    """The folders of all runs below `home`."""
    return sorted(path.parent for path in (home / "runs").glob("*/spec.json"))


def find(home: Path, wanted: str) -> Run:
    """The run named `wanted`, or the only one whose name begins with it.

    Raises:
        ConfigError: no such run, more than one, or one that another version recorded.
    """
    known = {path.name: path for path in folders(home)}
    matches = [wanted] if wanted in known else [name for name in known if name.startswith(wanted)]
    if not known:
        raise ConfigError(f"no runs in {home}", fix="mcpo train scale=smoke")
    if len(matches) > 1:
        raise ConfigError(f"'{wanted}' begins the names of {len(matches)} runs: {', '.join(matches)}")
    if not matches:
        raise ConfigError(f"no run '{wanted}' in {home}: {nearest(wanted, known)}", fix="mcpo runs list")
    return _read(known[matches[0]])


def _read(folder: Path) -> Run:
    origin = folder / "origin.json"
    spec = load.from_dict(read_json(folder / "spec.json"))
    return Run(folder, spec, read_json(origin) if origin.exists() else {})
