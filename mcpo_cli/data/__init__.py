"""Data sets, declared in `mcpo_cli.data.sets`; loaded from the Hugging Face Hub at a pinned revision or from a file.

>>> from mcpo_cli import data
>>> data.load("aime24", path=Path("aime24.jsonl")).problems[0].gold
"""

import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from mcpo_cli import paths, plugins
from mcpo_cli.data import files
from mcpo_cli.data.base import Collection, Dataset, Loaded, Reading, Role, digest
from mcpo_cli.errors import ConfigError, bad_data, nearest
from mcpo_cli.golds import alternatives
from mcpo_cli.plugins import Found

__all__ = [
    "Dataset",
    "Loaded",
    "audit_words",
    "fetch",
    "get",
    "is_dataset",
    "load",
    "names",
    "of_file",
    "read",
    "registry",
    "unnamed",
]


@cache
def registry() -> Found[Dataset]:
    """All data sets by name, from `sets.py` and plug-ins. Raises ConfigError when two share a name."""
    return plugins.objects("datasets", ["mcpo_cli.data.sets"], "DATASET", Dataset)


@cache
def collections() -> Found[Collection]:
    """All collections of generated sets by name, from plug-ins. Raises ConfigError when two share a name."""
    return plugins.objects("collections", [], "COLLECTION", Collection)


def collections_of(sets: Iterable[str]) -> list[str]:
    """The names of the collections that some of these sets belong to."""
    return [begin for begin in collections() if any(name.startswith(begin) for name in sets)]


def _generated(name: str) -> Dataset | None:
    """The set `name` of a collection; None if no collection has it."""
    return next((dataset for collection in collections().values() if (dataset := collection.member(name))), None)


def get(name: str) -> Dataset:
    """The data set `name`. Raises ConfigError for an unknown one."""
    if generated := _generated(name):
        return generated
    sets = registry()
    if name not in sets:
        raise ConfigError(
            f"unknown data set '{name}': {nearest(name, sets)}", fix="mcpo components list data", code="unknown_name"
        )
    return sets[name]


def of_file(path: str, role: Role) -> Dataset:
    """The declaration of the file at `path`, named like the file without its suffix."""
    file = paths.named(path)
    return Dataset(files.stem(file.name), f"the problems of {file.name}", role, file=str(file))


def is_dataset(name: str, role: Role) -> bool:
    """True if `name` is a data set in `role`."""
    dataset = _generated(name) or registry().get(name)
    return dataset is not None and dataset.role == role


def names(role: Role | None = None) -> list[str]:
    """The names of all declared data sets, or of the declared data sets in `role`."""
    return [name for name, dataset in registry().items() if role in (None, dataset.role)]


def unnamed(name: str) -> Dataset:
    """The declaration for a file of unknown origin: plain columns, judged as strictly as a benchmark."""
    return Dataset(name, "unknown (name it with --as NAME)", "benchmark")


def read(dataset: Dataset, path: Path | None = None) -> Reading:
    """All rows of `dataset`, from the hub or from `path` (a file, or a folder with `<name>.jsonl` or `.parquet`).

    A generated set ignores `path`.

    Raises:
        ConfigError: the hub or the file cannot be read, or the file has an unknown schema.
    """
    if dataset.draw:
        return dataset.draw()
    if path is None:
        return files.read(files.fetch(dataset), dataset, dataset.origin)
    file = files.locate(path, dataset.name)
    return files.read(file, dataset, file.name)


def fetch(dataset: Dataset, path: Path | None = None) -> None:
    """Make sure that `dataset` is available: drawn, on this machine or in the hub's cache.

    Raises:
        ConfigError: it cannot be drawn or downloaded, or there is no such file.
    """
    if dataset.draw:
        dataset.draw()
    elif path is None:
        files.fetch(dataset)
    else:
        files.locate(path, dataset.name)


def load(dataset: str | Dataset, path: Path | None = None) -> Loaded:
    """The problems of `dataset`, each once, from the hub or from `path` (see `read`).

    In a training set, problems with contradicting golds are left out and counted: DAPO-Math-17k contains some.

    Raises:
        ConfigError: unknown name, unreadable data, an empty problem or gold, a gold that is not an integer though
            declared so, or a benchmark problem with contradicting golds (`mcpo components check data` lists them).
    """
    declared = get(dataset) if isinstance(dataset, str) else dataset
    reading = read(declared, path)
    audit = f"mcpo components check data {audit_words(declared, path)}"
    if reading.defects:
        defect = reading.defects[0]
        raise bad_data(f"{reading.source}, row {defect.row}: {defect.kind}: {defect.shown[:80]!r}", fix=audit)
    if reading.conflicts and declared.role == "benchmark":
        text, golds = next(iter(reading.conflicts.items()))
        contradiction = f"the same problem has the golds {', '.join(golds)}: {text[:80]!r}"
        raise bad_data(f"{reading.source}, row {reading.first[text]}: {contradiction}", fix=audit)
    problems = reading.agreed
    if not problems:
        raise bad_data(f"{reading.source}: no problem is left: each has rows with contradicting golds", fix=audit)
    return Loaded(
        declared.name,
        problems,
        digest(problems),
        reading.source,
        reading.rows,
        _notes(declared, reading),
        declared.grader,
        len(reading.conflicts),
    )


def audit_words(dataset: Dataset, path: Path | None) -> str:
    """The words of a command that name a data set or a file, and the set that the file is a copy of."""
    file = path or (None if dataset.repo else dataset.file) or None
    if file is None:
        return dataset.name
    return shlex.quote(str(file)) + (f" --as {dataset.name}" if dataset.name in registry() else "")


def _notes(dataset: Dataset, reading: Reading) -> tuple[str, ...]:
    unique, notes = len(reading.problems), []
    if reading.rows > unique:
        notes.append(f"{reading.rows} rows hold {unique} different problems; each is used once")
    if reading.conflicts:
        notes.append(f"{len(reading.conflicts)} problems have contradicting golds and are left out")
    if count := sum(len(alternatives(problem.gold)) > 1 for problem in reading.agreed):
        counted = "1 problem has" if count == 1 else f"{count} problems have"
        notes.append(f"{counted} a list of golds, of which each is correct")
    if dataset.size not in (None, unique):
        notes.append(f"{unique} problems instead of the published {dataset.size}")
    return tuple(notes)
