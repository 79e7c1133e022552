"""The reference of settings and the glossary, for `mcpo help`.

The reference is made from the dataclasses that check settings (`convert`), so it knows the methods, tasks and presets
of this installation, including plug-ins.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpo_cli.config import presets
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.convert import convert
from mcpo_cli.settings import IDENTITY, Option, options, plain

GLOSSARY = Path(__file__).with_name("glossary.yaml")


@dataclass(frozen=True)
class Word:
    """A word, or several with one meaning."""

    word: str
    meaning: str
    example: str = ""


@dataclass(frozen=True)
class Glossary:
    """All words by the heading of their section, and the introduction of the page."""

    intro: str
    sections: Mapping[str, tuple[Word, ...]]


@dataclass(frozen=True)
class Entry:
    """A key, or a group of presets, as the command line names it."""

    key: str
    meaning: str
    default: Any
    allowed: str
    """Choices or bounds; empty if any value of its type is valid."""
    role: str
    """`identity` if it changes the result and the run id, else `runtime`."""
    owners: tuple[str, ...] = ()
    """The methods or tasks that have this option; empty for a setting of every run."""


def entries() -> list[Entry]:
    """All keys in alphabetical order; an option that methods declare differently has an entry for each meaning."""
    return sorted([*_presets(), *_settings(), *_options()], key=lambda entry: (entry.key, entry.owners))


def look_up(key: str) -> tuple[list[Entry], list[Word]]:
    """The entries of the key or group `key` (`train`), else all that contain this word; and words of the glossary.

    A word matches if its name contains `key` or, if `key` is not a setting, its meaning does.

    Raises:
        ConfigError: no entry and no word matches.
    """
    matches = [entry for entry in entries() if f"{entry.key}.".startswith(f"{key}.")]
    settings, words = matches or search(key), _explained(key, in_meanings=not matches)
    if not settings and not words:
        raise presets.unknown_key(key, lambda name: f"mcpo help {name}")
    return settings, words


def search(word: str) -> list[Entry]:
    """The entries that contain this word: in the key, then in the meaning or as a choice."""
    key_matches = [entry for entry in entries() if _has_word(word, entry.key.replace(".", " ").replace("_", " "))]
    text_matches = [entry for entry in entries() if _has_word(word, f"{entry.meaning} {entry.allowed}")]
    return list(dict.fromkeys([*key_matches, *text_matches]))


@functools.cache
def glossary() -> Glossary:
    """The glossary, which docs/concepts.md shows."""
    return convert(Glossary, read_yaml(GLOSSARY), GLOSSARY.name)


def _explained(text: str, *, in_meanings: bool) -> list[Word]:
    """The words whose names contain `text`, then, if `in_meanings`, whose meanings do; only whole words match.

    `metrics` stands for all metrics that a run records.
    """
    if text.lower() == "metrics":
        return [
            word for title, section in glossary().sections.items() if title.startswith("Metrics") for word in section
        ]
    words = [word for section in glossary().sections.values() for word in section]
    name_matches = [word for word in words if _has_word(text, word.word)]
    meaning_matches = [word for word in words if in_meanings and _has_word(text, word.meaning)]
    return list(dict.fromkeys([*name_matches, *meaning_matches]))


def _has_word(word: str, text: str) -> bool:
    """True if `text` contains `word` as a whole word."""
    return bool(re.search(rf"(?<![a-z]){re.escape(word.lower())}(?![a-z])", text.lower()))


def _presets() -> Iterator[Entry]:
    option_of = {option.name: option for option in options(RunSpec)}
    class_meanings = {"method": "The training method.", "task": "The task.", "model": "Preset of a model's sizes."}
    for group, names in presets.groups().items():
        meaning = class_meanings.get(group) or option_of[group].meaning
        yield Entry(group, meaning, presets.default(group), ", ".join(names), IDENTITY)


def _settings() -> Iterator[Entry]:
    groups, setting_keys = presets.groups(), presets.keys()
    for option in options(RunSpec):
        if dataclasses.is_dataclass(option.default):
            yield from (_entry(f"{option.name}.{field.name}", field) for field in options(type(option.default)))
        elif option.name in setting_keys and option.name not in groups:
            yield _entry(option.name, option)


def _options() -> Iterator[Entry]:
    for group, registry in presets.CLASSES.items():
        owner_names: dict[Entry, list[str]] = {}
        for name, kind in registry().items():
            for option in options(kind):
                owner_names.setdefault(_entry(f"{group}.{option.name}", option), []).append(name)
        yield from (dataclasses.replace(entry, owners=tuple(names)) for entry, names in owner_names.items())


def _entry(key: str, option: Option) -> Entry:
    return Entry(key, option.meaning, plain(option.default), option.allowed, option.role)
