"""The words of mcpo and what they mean, from `glossary.yaml`; `mcpo help WORD` and docs/concepts.md show them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.spelling import whole_word
from mcpo_cli.convert import convert

FILE = Path(__file__).with_name("glossary.yaml")


@dataclass(frozen=True)
class Word:
    """A word, or several that mean one thing."""

    word: str
    meaning: str
    example: str = ""


@dataclass(frozen=True)
class Glossary:
    """All words by the heading of their section, and what the page says before them."""

    intro: str
    sections: Mapping[str, tuple[Word, ...]]


@functools.cache
def read() -> Glossary:
    """The glossary."""
    return convert(Glossary, read_yaml(FILE), FILE.name)


def search(text: str, *, in_meanings: bool) -> list[Word]:
    """The words that `text` is a part of, then, if wanted, those whose meaning has it; words are compared whole."""
    words = [word for section in read().sections.values() for word in section]
    named = [word for word in words if whole_word(text, word.word)]
    meant = [word for word in words if in_meanings and whole_word(text, word.meaning)]
    return list(dict.fromkeys([*named, *meant]))
