"""The sides of a comparison from what a user names: paths of logs, arms of several, runs and evaluations of mcpo."""

import difflib
import glob
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mcpo_cli.errors import SIMILAR, ConfigError
from mcpo_cli.home import location
from mcpo_cli.results.log import Log, Side
from mcpo_cli.runs import catalog

SUFFIXES = (".csv", ".jsonl", ".json", ".parquet", ".eval")
"""Endings by which a word is the name of a log, even where there is no such file."""
Read = Callable[[Path], list[Log]]


def is_log(word: str) -> bool:
    """Whether a word names a log, rather than a run of mcpo or a suite."""
    return "/" in word or word.endswith(SUFFIXES) or Path(word).exists() or _evaluation(word).is_dir()


def sides(words: Sequence[str], arms: Mapping[str, str], read: Read) -> list[Side]:
    """The sides that `words` name, one each, and those of `arms`: name -> glob of the logs of its training seeds.

    A single word with several logs in it (models, say) is a side for each.

    Raises:
        ConfigError: see `readers.read`; or a word or a glob names nothing.
    """
    paths = [path for word in words for path in _paths(word)]
    found = [read(path) for path in paths]
    if len(found) == 1 and not arms:
        paths, found = [log.path for log in found[0]], [[log] for log in found[0]]
    named = [Side(name, tuple(logs)) for name, logs in zip(names(paths), found, strict=True)]
    return named + [
        Side(name, tuple(log for path in _matches(pattern) for log in read(path))) for name, pattern in arms.items()
    ]


def _paths(word: str) -> list[Path]:
    if Path(word).exists():
        return [Path(word)]
    if _evaluation(word).is_dir():
        return [_evaluation(word)]
    if glob.has_magic(word):
        return _matches(word)
    runs = [path.name for path in catalog.folders(location())]
    if any(run.startswith(word) for run in runs):
        return [location() / "runs" / catalog.find(location(), word).spec.run_id]
    beside = [str(path) for path in Path(word).parent.glob("*")]
    close = difflib.get_close_matches(word, [*beside, *runs], n=1, cutoff=SIMILAR)
    raise ConfigError(
        f"{word}: there is no such file, folder or run" + (f": did you mean {close[0]!r}?" if close else ""),
        fix="the path of a log, or the id of a run (mcpo runs list)",
        code="not_found",
    )


def _evaluation(word: str) -> Path:
    return location() / "evals" / word


def _matches(pattern: str) -> list[Path]:
    whole = str(Path(pattern).expanduser())
    found = [Path(path) for path in sorted(glob.glob(whole, recursive=True))]  # noqa: PTH207 (absolute ones, too)
    if not found:
        raise ConfigError(
            f"{pattern}: no file or folder matches",
            fix="write the pattern in quotes, relative to this folder: --arm grpo='logs/grpo-s*'",
            code="not_found",
        )
    return found


def names(paths: Sequence[Path]) -> list[str]:
    """A name for each path: the last part in which all of them differ, or else the whole path.

    A suffix of the name is left out: `base.jsonl` is `base`.
    """
    parts = [
        (*path.parts[:-1], path.stem if path.suffix in SUFFIXES else path.name) for path in map(Path.absolute, paths)
    ]
    for place in range(1, min(map(len, parts), default=0) + 1):
        found = [one[-place] for one in parts]
        if len(set(found)) == len(found):
            return found
    return list(map(str, paths))
