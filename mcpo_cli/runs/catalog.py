"""The runs in a home."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from mcpo_cli import methods, prompt_samplers, tasks
from mcpo_cli.config import arm_names, load
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.reading import key_of, parse, read
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, McpoError, RunFailed, mend, nearest, one_line, similar
from mcpo_cli.home import is_plain
from mcpo_cli.records import State
from mcpo_cli.runs import attempts, index
from mcpo_cli.runs.index import Index, Summary
from mcpo_cli.runs.journal import Journal, read_json, write_json

TAGS = "tags.json"
"""Tags of runs: the user's words, kept next to the runs because they are not part of a run's record."""
TRASH = "trash"
"""Folder of deleted runs, see `runs/trash.py`."""
TAG = re.compile(r"\w[\w.-]*")


class Run:
    """One run on disk; its settings are read when they are asked for.

    What has been read about a run stays as it was; only `state` follows a run that is not done.

    Args:
        origin: suite, arm and command that first started it.
        summary: what a listing of the home has read about it.
    """

    def __init__(
        self, folder: Path, settings: RunSpec | None, origin: dict[str, Any], summary: Summary | None = None
    ) -> None:
        self.folder, self.origin = folder, origin
        self._settings, self._summary = settings, summary

    @property
    def spec(self) -> RunSpec:
        """Raises RunFailed or ConfigError if the settings were damaged since the run was found."""
        if self._settings is None:
            self._settings = spec(self.folder)
        return self._settings

    @property
    def summary(self) -> Summary:
        """What lists say about it."""
        if self._summary is None:
            self._summary = index.summarise(self.folder, self.spec, self.origin)
        return self._summary

    @property
    def state(self) -> State:
        if self._summary and self._summary.state == "done":
            return attempts.state_of(self.folder, "done")
        return attempts.state(self.folder, self.spec)

    @property
    def score(self) -> float | None:
        """Mean pass@1 over the held-out problems of the last evaluation; None before the first, or if it is damaged."""
        return self._summary.score if self._summary else index.score(Journal(self.folder))

    @property
    def date(self) -> str:
        """Time of its last update, as `2026-11-25 09:28` in local time; "" before its first attempt."""
        return when(self._summary.updated if self._summary else index.updated(Journal(self.folder)))

    @property
    def tags(self) -> list[str]:
        """The user's tags (`mcpo runs tag`)."""
        return tags_of(self.folder.parents[1]).get(self.folder.name, [])

    @property
    def facts(self) -> dict[str, Any]:
        """Criteria to choose and sort runs by: settings that decide the result, suite and name; see also LOOKED_UP."""
        settings = self._summary.facts if self._summary else index.facts(self.spec)
        return {
            **settings,
            **{key: settings[name] for key, name in ABOUT.items()},
            "suite": self.origin.get("suite", "train"),
            "name": self.folder.name,
        }

    def __repr__(self) -> str:
        return f"Run({self.folder.name}, {self.state})"

    @property
    def planned(self) -> PlannedRun:
        """The run with the arm that it was started as."""
        return PlannedRun(self.origin.get("arm", self.spec.method.label), self.spec)


ABOUT = {"method": "method.name", "model": "model.name", "task": "task.name"}
"""Short names of settings, to choose runs by."""
LOOKED_UP: Mapping[str, Callable[[Run], Any]] = {
    "state": lambda run: run.state,
    "score": lambda run: run.score,
    "date": lambda run: run.date,
    "tag": lambda run: frozenset(run.tags),
}
"""More criteria to choose and sort by. Files of each run are read for them, so only if they are asked for."""


def runs(home: Path, note: Callable[[str, str], None] = lambda name, why: None) -> Iterator[Run]:
    """All readable runs of `home`, by name.

    note: gets the name of each run left out, and why (damaged, other version).
    """
    paths = folders(home)
    cache = Index(home) if len(paths) >= index.LEAST else None
    for folder in paths:
        if cache and (summary := cache.get(folder)):
            yield Run(folder, None, summary.origin, summary)
            continue
        try:
            run = _read(folder)
        except McpoError as error:
            note(folder.name, one_line(str(error)))
            continue
        if cache:
            cache.add(folder, run.summary)
        yield run
    if cache:
        cache.save()


def when(updated: float | None) -> str:
    """A time in seconds since the epoch as `2026-11-25 09:28` in local time; "" for none."""
    return "" if updated is None else datetime.fromtimestamp(updated).astimezone().strftime("%Y-%m-%d %H:%M")


def left_out(reasons: Mapping[str, str]) -> str:
    """One line per reason why runs are left out, for any number of runs. reasons: run -> reason."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    lines = (
        f"{len(group)} left out, {group[0]}{' and others' if len(group) > 1 else ''}: {reason}"
        for reason, group in names.items()
    )
    return "\n".join(lines)


def chosen(runs: Iterable[Run], where: Sequence[str] = (), sort: str = "") -> list[Run]:
    """The runs of `runs` that have these settings, in order.

    where: words such as `method=mcpo`, `train.lr=1e-3`, `seed=0,1`, `state=done`, `tag=keep`. sort: a setting, `name`,
    `state`, `score` or `date`; with a minus, the largest first; runs that lack it come last.

    Raises:
        ConfigError: no run has a setting of that name.
    """
    keys = list(filter(None, [*map(key_of, where), sort.removeprefix("-")]))
    if not keys:
        return list(runs)
    looked_up = {key: LOOKED_UP[key] for key in keys if key in LOOKED_UP}
    facts = [(run, run.facts | {key: look(run) for key, look in looked_up.items()}) for run in runs]
    for key in keys:
        if facts and not any(key in row for _, row in facts):
            names = {name: None for _, row in facts for name in row} | dict.fromkeys(LOOKED_UP)
            guesses = [name for name in names if name.endswith(f".{key}")] or names
            listed = mend("{}", key, names, "mcpo help  (lists the settings)")
            fix = listed if guesses is names else " or ".join(sorted(guesses))
            hint = f": {nearest(key, guesses)}" if guesses is not names or similar(key, names) else ""
            raise ConfigError(f"no run has a setting '{key}'{hint}", fix=fix, code="unknown_key")
    filters = [(key_of(word), _values(word)) for word in where]
    rows = [(run, row) for run, row in facts if all(_has(row.get(key), values) for key, values in filters)]
    if key := sort.removeprefix("-"):
        with_it = [(run, row) for run, row in rows if row.get(key) is not None]
        with_it.sort(key=lambda pair: natural(pair[1][key]), reverse=sort.startswith("-"))
        rows = with_it + [(run, row) for run, row in rows if row.get(key) is None]
    return [run for run, _ in rows]


def _values(word: str) -> list[Any]:
    """The values of a word such as `seed=0,1`, each as it was written (a tag may be `1.10`) and as Hydra reads it."""
    key, texts = parse(word)
    return [value for text in texts for value in (text, read(f"{key}={text}").value())]


def _has(fact: Any, values: Sequence[Any]) -> bool:
    names = [*map(str, values)]
    return not fact.isdisjoint(names) if isinstance(fact, frozenset) else fact in (*values, *names)


def natural(value: Any) -> tuple[bool, float, str]:
    """Sort key: numbers in numerical order, then texts in alphabetical order."""
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
    return _read(folder(home, wanted))


def folder(home: Path, wanted: str) -> Path:
    """The folder of the run that `find` finds, readable or not.

    Raises:
        ConfigError: no run matches, or several do.
    """
    known = {path.name: path for path in folders(home)}
    deleted = [path.name for path in (home / TRASH).glob("*") if path.name.startswith(wanted)]
    if deleted and not any(name.startswith(wanted) for name in known):
        raise ConfigError(f"{deleted[0]} is in the trash", fix=f"mcpo runs restore {wanted}", code="unknown_name")
    if not known:
        raise ConfigError(
            f"there is no run '{wanted}': {home} has no runs",
            fix="MCPO_HOME=FOLDER if your runs are elsewhere, or mcpo train scale=smoke",
            code="unknown_name",
        )
    return known[matching(wanted, known, home, "mcpo runs list")]


def matching(wanted: str, known: Mapping[str, Path], place: Path, listing: str) -> str:
    """The run id that is `wanted`, or the only one that begins with it; of several, the only one that is not a fork.

    The id of a fork that keeps its trunk's method begins like the trunk's; so a beginning still means the trunk.

    Args:
        known: the folders of runs, by id.
        place: the folder of these runs, for messages.
        listing: the command that lists them.

    Raises:
        ConfigError: no id matches, or several do.
    """
    ids = list(known)
    matches = [wanted] if wanted in ids else [name for name in ids if wanted and name.startswith(wanted)]
    if len(matches) > 1:
        originals = [name for name in matches if not _is_fork(known[name])]
        matches = originals if len(originals) == 1 else matches
    if len(matches) > 1:
        raise ConfigError(
            f"'{wanted}' is the beginning of {len(matches)} run ids: {', '.join(matches)}",
            fix=f"{matches[0]}, or another of these, in place of {wanted}  ({listing} lists them)",
            code="duplicate_name",
        )
    if not matches:
        raise ConfigError(f"no run '{wanted}' in {place}: {nearest(wanted, ids)}", fix=listing, code="unknown_name")
    return matches[0]


def _is_fork(folder: Path) -> bool:
    """True if the run in `folder` is a fork; False if its settings cannot be read."""
    with suppress(RunFailed, OSError):
        return bool(read_json(folder / "spec.json").get("fork"))
    return False


def tags_of(home: Path) -> dict[str, list[str]]:
    """Run id -> its tags, sorted.

    Raises:
        RunFailed: the file is damaged.
    """
    path = home / TAGS
    return dict(read_json(path)["tags"]) if path.exists() else {}


def tag(home: Path, run_id: str, tags: Sequence[str], *, remove: bool = False) -> list[str]:
    """Add tags to a run, or remove them; returns its tags after that.

    Raises:
        ConfigError: a tag is not a plain word.
        RunFailed: the file is damaged or cannot be written.
    """
    if fault := next((tag for tag in tags if not TAG.fullmatch(tag)), None):
        word = re.sub(r"[^\w.-]+", "-", fault).strip("-.") or "keep"
        raise ConfigError(
            f"'{fault}' is no tag: a tag has letters, digits, _, - and .", fix=f"mcpo runs tag {run_id} {word}"
        )
    with FileLock(home / f"{TAGS}.lock"):
        tags_by_run = tags_of(home)
        before = set(tags_by_run.pop(run_id, []))
        after = sorted(before - set(tags) if remove else before | set(tags))
        write_json(home / TAGS, {"tags": {**tags_by_run, run_id: after} if after else tags_by_run})
    return after


def plan_of(home: Path, ids: Sequence[str], command: str) -> Plan:
    """The plan of existing runs, by ids or the beginnings of ids. command: the verb that asks for them.

    Raises:
        ConfigError: see `find`; or two of `ids` name one run.
    """
    runs = [find(home, name) for name in ids]
    run_ids = [run.spec.run_id for run in runs]
    if twice := [run_id for run_id in dict.fromkeys(run_ids) if run_ids.count(run_id) > 1]:
        raise ConfigError(f"{', '.join(twice)} is named twice: a run is not compared with itself", fix="mcpo runs list")
    return Plan("runs", shlex.join([*command.split(), *ids]), named(runs))


def named(runs: Sequence[Run]) -> tuple[PlannedRun, ...]:
    """The runs with their arms, named by the differences of these runs, whatever commands trained them."""
    return tuple(map(PlannedRun, arms([run.summary for run in runs]), [run.spec for run in runs]))


def arms(summaries: Sequence[Summary]) -> list[str]:
    """The names of the arms of runs, see `named`."""
    labels, methods = [summary.arm for summary in summaries], [summary.method for summary in summaries]
    return arm_names.of_settings(labels, methods, [summary.settings for summary in summaries])


def spec(folder: Path) -> RunSpec:
    """The settings of the run in `folder`, whose name must be the run id that they give.

    Raises:
        RunFailed: spec.json is damaged or belongs to another run.
        ConfigError: another version wrote it.
    """
    recorded = read_json(folder / "spec.json")
    kinds = ("method", methods.registry), ("task", tasks.registry), ("sampler", prompt_samplers.registry)
    for kind, registry in kinds:
        declared = recorded.get(kind)
        name = declared.get("name") if isinstance(declared, dict) else None
        if isinstance(name, str) and name not in registry():
            raise ConfigError(
                f"{kind} '{name}' is not here: removed, or in a plug-in that MCPO_PLUGINS does not name",
                fix=f"mcpo components list {kind}",
                code="unknown_name",
            )
    settings = load.from_dict(recorded)
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
