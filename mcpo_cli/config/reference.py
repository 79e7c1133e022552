"""The reference of settings: meaning, default and bounds of every key that an override may name."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mcpo_cli.config import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.settings import IDENTITY, Option, options, plain


@dataclass(frozen=True)
class Entry:
    """A key, or a group of presets, as the command line names it."""

    key: str
    meaning: str
    default: Any
    allowed: str
    """Choices or bounds; empty where any value of its type will do."""
    role: str
    """`identity` if it changes the result and the run id, else `runtime`."""
    owners: tuple[str, ...] = ()
    """The methods or tasks that have this option; empty for a setting of every run."""


def entries() -> list[Entry]:
    """All keys in alphabetical order; an option that methods declare differently has an entry for each meaning."""
    return sorted([*_presets(), *_settings(), *_options()], key=lambda entry: (entry.key, entry.owners))


def look_up(key: str) -> list[Entry]:
    """The entries of `key`, and of all keys of the group that it names (`train`).

    Raises:
        ConfigError: there is no such key.
    """
    if found := [entry for entry in entries() if f"{entry.key}.".startswith(f"{key}.")]:
        return found
    raise load.unknown_key(key, lambda name: f"mcpo help {name}")


def _presets() -> Iterator[Entry]:
    about = {option.name: option for option in options(RunSpec)}
    kinds = {"method": "The training method.", "task": "The task.", "model": "Preset of a model's sizes."}
    for group, names in load.groups().items():
        meaning = kinds.get(group) or about[group].meaning
        yield Entry(group, meaning, load.read_default(group), ", ".join(names), IDENTITY)


def _settings() -> Iterator[Entry]:
    groups, known = load.groups(), load.keys()
    for option in options(RunSpec):
        if dataclasses.is_dataclass(option.default):
            yield from (_entry(f"{option.name}.{inner.name}", inner) for inner in options(type(option.default)))
        elif option.name in known and option.name not in groups:
            yield _entry(option.name, option)


def _options() -> Iterator[Entry]:
    for group, kinds in load.KINDS.items():
        alike: dict[Entry, list[str]] = {}
        for name, kind in kinds().items():
            for option in options(kind):
                alike.setdefault(_entry(f"{group}.{option.name}", option), []).append(name)
        yield from (dataclasses.replace(entry, owners=tuple(names)) for entry, names in alike.items())


def _entry(key: str, option: Option) -> Entry:
    return Entry(key, option.meaning, plain(option.default), option.allowed, option.role)
