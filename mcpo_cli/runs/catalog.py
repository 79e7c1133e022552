"""The runs that a home holds."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpo_cli.config import arms, load
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.reading import key_of, read
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, McpoError, RunFailed, nearest
from mcpo_cli.home import is_plain
from mcpo_cli.records import State
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import read_json


@dataclass(frozen=True)
class Run:
    """One run on disk."""

    folder: Path
    spec: RunSpec
    origin: dict[str, Any]
    """Suite, arm and command that first started it."""

    @property
    def state(self) -> State:
        return attempts.state(self.folder, self.spec)

    @property
    def facts(self) -> dict[str, Any]:
        """What runs are chosen and sorted by: the settings that decide the result, `name` and `state`."""
        return {
            **self.spec.flat_identity(later_too=True),
            **self.spec.about,
            "name": self.folder.name,
            "state": self.state,
        }

    def __repr__(self) -> str:
        return f"Run({self.folder.name}, {self.state})"

    @property
    def cell(self) -> PlannedRun:
        """The run with the arm that it was started as."""
        return PlannedRun(self.origin.get("arm", self.spec.method.label), self.spec)


def runs(home: Path, note: Callable[[str], None] = lambda _: None) -> Iterator[Run]:
    """All readable runs of `home`, by name. `note` gets the reason for each run left out (damaged, other version)."""
    for folder in folders(home):
        try:
            yield _read(folder)
        except McpoError as error:
            note(f"{folder.name} is left out: {error}")


def chosen(found: Iterable[Run], where: Sequence[str] = (), sort: str = "") -> list[Run]:
    """Those of `found` with these settings, in order.

    where: words such as `method=mcpo`, `train.lr=1e-3`, `state=done`. sort: a setting, `name` or `state`; with a minus,
    the largest first; runs that lack it come last.

    Raises:
        ConfigError: no run has a setting of that name.
    """
    facts = [(run, run.facts) for run in found]
    for key in filter(None, [*map(key_of, where), sort.removeprefix("-")]):
        known = {name: None for _, one in facts for name in one}
        if facts and key not in known:
            raise ConfigError(f"no run has a setting '{key}': {nearest(key, known)}", code="unknown_key")
    wanted = {key_of(word): read(word).value() for word in where}
    kept = [
        (run, one) for run, one in facts if all(one.get(key) in (value, str(value)) for key, value in wanted.items())
    ]
    if key := sort.removeprefix("-"):
        with_it = [(run, one) for run, one in kept if one.get(key) is not None]
        with_it.sort(key=lambda pair: natural(pair[1][key]), reverse=sort.startswith("-"))
        kept = with_it + [(run, one) for run, one in kept if one.get(key) is None]
    return [run for run, _ in kept]


def natural(value: Any) -> tuple[bool, float, str]:
    """Numbers in their order, before texts in theirs."""
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if is_number else 0.0, str(value)


def folders(home: Path) -> list[Path]:
    """The folders of all runs of `home`, by name."""
    return sorted(path.parent for path in (home / "runs").glob("*/spec.json"))


def find(home: Path, wanted: str) -> Run:
    """The run named `wanted`, or the only one whose name begins with it.

    Raises:
        ConfigError: no run matches, several match, or another version recorded it.
    """
    known = {path.name: path for path in folders(home)}
    matches = [wanted] if wanted in known else [name for name in known if name.startswith(wanted)]
    if not known:
        raise ConfigError(f"no runs in {home}", fix="mcpo train scale=smoke")
    if len(matches) > 1:
        raise ConfigError(
            f"'{wanted}' is the beginning of {len(matches)} run ids: {', '.join(matches)}", code="duplicate_name"
        )
    if not matches:
        raise ConfigError(
            f"no run '{wanted}' in {home}: {nearest(wanted, known)}", fix="mcpo runs list", code="unknown_name"
        )
    return _read(known[matches[0]])


def plan_of(home: Path, ids: Sequence[str], command: str) -> Plan:
    """The plan of existing runs, by ids or the beginnings of ids. command: the verb that asks for them.

    Raises:
        ConfigError: see `find`; or two of `ids` name one run.
    """
    found = [find(home, wanted) for wanted in ids]
    run_ids = [run.spec.run_id for run in found]
    if twice := [run_id for run_id in dict.fromkeys(run_ids) if run_ids.count(run_id) > 1]:
        raise ConfigError(f"{', '.join(twice)} is named twice: a run is not compared with itself", fix="mcpo runs list")
    return Plan("runs", shlex.join([*command.split(), *ids]), named(found))


def named(found: Sequence[Run]) -> tuple[PlannedRun, ...]:
    """The runs with their arms, named from what differs between these runs, whichever commands trained them."""
    specs = [run.spec for run in found]
    labels = [arms.label(run.cell.arm, run.spec) for run in found]
    return tuple(map(PlannedRun, arms.names(labels, specs), specs))


def spec(folder: Path) -> RunSpec:
    """The settings of the run in `folder`, whose name must be the run id that they give.

    Raises:
        RunFailed: spec.json is damaged or belongs to another run.
        ConfigError: another version wrote it.
    """
    settings = load.from_dict(read_json(folder / "spec.json"))
    if settings.run_id != folder.name:
        raise RunFailed(
            f"{folder / 'spec.json'} holds the settings of {settings.run_id}: it is damaged or from another version",
            fix="start the run with the command that trained it (origin.json), which writes the file again",
            code="damaged",
        )
    return settings


def _read(folder: Path) -> Run:
    path = folder / "origin.json"
    origin = read_json(path) if path.exists() else {}
    # The suite becomes a folder name in the store.
    if not (isinstance(suite := origin.get("suite", "train"), str) and is_plain(suite)):
        raise RunFailed(
            f"{path} names a suite that is not a plain folder name: {suite!r}", fix=f"rm {path}", code="unsafe"
        )
    settings = spec(folder)
    attempts.check_own(folder, settings)
    return Run(folder, settings, origin)
