"""The sides of a comparison by their names: paths of logs, arms of several logs, runs and evaluations of mcpo."""

import difflib
import glob
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from mcpo_cli.compare.log import Log, Side
from mcpo_cli.config import plan
from mcpo_cli.data.tables import FORMATS
from mcpo_cli.errors import SIMILAR, ConfigError
from mcpo_cli.home import location
from mcpo_cli.paths import named
from mcpo_cli.runs import catalog

SUFFIXES = (*FORMATS, ".eval")
"""Suffixes that make a word the name of a log, even if the file does not exist."""
UNSAID = re.compile(r"\d{4}-?\d\d-?\d\d|/|^[0-9a-f]{8}[0-9a-f-]*$")
"""A date, a whole path or a hash in the name of a file: it does not say what was evaluated."""
Read = Callable[[Iterable[Path]], Mapping[Path, list[Log]]]


def is_log(word: str) -> bool:
    """True if a word names a log, rather than a run of mcpo or a suite."""
    return "/" in word or word.endswith(SUFFIXES) or named(word).exists() or _is_evaluation(word)


def run_of(word: str) -> str:
    """The id of the run whose folder in this home `word` is; empty if it is no such folder."""
    path = named(word)
    is_run = (path / "spec.json").is_file() and path.resolve().parent == (location() / "runs").resolve()
    return path.resolve().name if is_run else ""


def sides(words: Sequence[str], arms: Mapping[str, str], read: Read, history: str = "") -> list[Side]:
    """The sides that `words` name, and the sides of `arms`: name -> glob of the logs of its training seeds.

    A word is one side, or one per model if it has logs of several. Logs of one model are its training seeds. A log that
    another side names is no part of the `history` (a pattern of `arms`), even if it matches; a note says so.

    Raises:
        ConfigError: see `readers.read`; a word or a glob matches no file; or two sides have a file in common.
    """
    paths = [path for word in words for path in _paths(word)]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise ConfigError(
            f"{twice} is named twice: a log is not compared with itself",
            fix=f"mcpo compare {twice} OTHER",
            code="duplicate_name",
        )
    files_of = {name: _matches(pattern) for name, pattern in arms.items() if pattern != history}
    new = {path.resolve() for path in chain(paths, *files_of.values())}
    earlier = _matches(history) if history else []
    past = [path for path in earlier if path.resolve() not in new]
    if earlier and not past:
        raise ConfigError(
            f"--history {history} matches only what is compared with it: no earlier run is left",
            fix="a pattern of the earlier runs, in quotes: --history 'runs/*.csv'",
            code="not_found",
        )
    of_arms = {name: files_of.get(name, past) for name in arms}
    _refuse_shared({"the files named without --arm": paths, **of_arms})
    logs = {**read(chain(paths, *of_arms.values()))}
    left = [path for path in earlier if path not in past]
    notes = tuple(f"{path} is the new run, and was left out of the history" for path in left)
    logs |= {path: [replace(log, notes=(*log.notes, *notes)) for log in logs[path]] for path in past[:1]}
    logs_of: dict[Path, list[Log]] = {}
    for path in paths:
        models = {log.model for log in logs[path]}
        for log in logs[path]:
            logs_of.setdefault(path / log.model if len(models) > 1 else path, []).append(log)
    sides = [Side(name, tuple(of_side)) for name, of_side in zip(_said(logs_of), logs_of.values(), strict=True)]
    return sides + [Side(name, tuple(log for path in of_arm for log in logs[path])) for name, of_arm in of_arms.items()]


def _refuse_shared(paths_of: Mapping[str, Sequence[Path]]) -> None:
    """Raise ConfigError if a file is in two of the arms."""
    owner: dict[Path, str] = {}
    for name, paths in paths_of.items():
        for path in paths:
            if (other := owner.setdefault(path.resolve(), name)) != name:
                raise ConfigError(
                    f"{path} is in {name}, and in {other}: a log is not compared with itself",
                    fix="patterns that share no file: --arm base='logs/base-s*' --arm grpo='logs/grpo-s*'",
                    code="duplicate_name",
                )


def _paths(word: str) -> list[Path]:
    path = named(word)
    if path.exists() or _is_evaluation(word) or plan.is_suite(word):
        return [path]
    if glob.has_magic(word):
        return _matches(word)
    runs = [path.name for path in catalog.folders(location())]
    if any(run.startswith(word) for run in runs):
        return [path]
    siblings = [str(file) for file in path.parent.glob("*")]
    close = difflib.get_close_matches(word, [*siblings, *runs], n=1, cutoff=SIMILAR)
    raise ConfigError(
        f"{word}: there is no such file, folder or run" + (f": did you mean {close[0]!r}?" if close else ""),
        fix="the path of a log (docs/readers.md), or the id of a run (mcpo runs list)",
        code="not_found",
    )


def _is_evaluation(word: str) -> bool:
    return (location() / "evals" / word).is_dir()


def _matches(pattern: str) -> list[Path]:
    """The paths that match; raises ConfigError if there are none."""
    paths = [Path(path) for path in sorted(glob.glob(str(named(pattern)), recursive=True))]  # noqa: PTH207 (absolute ones, too)
    if not paths:
        raise ConfigError(
            f"{pattern}: no file or folder matches",
            fix="write the pattern in quotes, relative to this folder: --arm grpo='logs/grpo-s*'",
            code="not_found",
        )
    return paths


def _said(logs_of: Mapping[Path, Sequence[Log]]) -> list[str]:
    """The names of sides by their paths, or by their models where a path does not say what was evaluated."""
    labels = names(logs_of)
    models = dict.fromkeys(model for logs in logs_of.values() for model in {log.model for log in logs} if model)
    if any(UNSAID.search(name) for name in labels) and len(models) == len(labels):
        return names(map(Path, models))
    return labels


def names(paths: Iterable[Path]) -> list[str]:
    """A name for each path: the last part in which all of them differ, or else the whole path.

    A suffix of the name is left out: `base.jsonl` is `base`.
    """
    files = list(paths)
    parts = [(*path.absolute().parts[:-1], path.stem if path.suffix in SUFFIXES else path.name) for path in files]
    for depth in range(1, min(map(len, parts), default=0) + 1):
        endings = [part[-depth] for part in parts]
        if len(set(endings)) == len(endings):
            return endings
    return list(map(str, files))
