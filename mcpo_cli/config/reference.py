"""The reference of settings and the glossary, for `mcpo help`; and JSON schemas of the files that users write.

Reference and schemas are made from the dataclasses that check settings (`convert`), so they know the methods, tasks and
presets of this installation, those of plug-ins included. Editors complete and check files by the schemas (draft
2020-12). A file that a schema takes may still contradict itself.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from mcpo_cli.config import kinds, load
from mcpo_cli.config.plan import Suite
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.convert import convert
from mcpo_cli.settings import IDENTITY, Option, options, plain

Schema = dict[str, Any]
GLOSSARY = Path(__file__).with_name("glossary.yaml")

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


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
    """The entries of `key`, and of all keys of the group that it names (`train`); else those that contain this word.

    And the words of the glossary that contain it: in their names and, if `key` is not a setting, in their meanings.

    Raises:
        ConfigError: no entry and no word matches.
    """
    named = [entry for entry in entries() if f"{entry.key}.".startswith(f"{key}.")]
    found, words = named or search(key), _explained(key, in_meanings=not named)
    if not found and not words:
        raise load.unknown_key(key, lambda name: f"mcpo help {name}")
    return found, words


def search(word: str) -> list[Entry]:
    """The entries that contain this word: in the key, then in the meaning or as a choice."""
    keys = [entry for entry in entries() if _has_word(word, entry.key.replace(".", " ").replace("_", " "))]
    others = [entry for entry in entries() if _has_word(word, f"{entry.meaning} {entry.allowed}")]
    return list(dict.fromkeys([*keys, *others]))


@functools.cache
def glossary() -> Glossary:
    """The glossary, which docs/concepts.md shows."""
    return convert(Glossary, read_yaml(GLOSSARY), GLOSSARY.name)


def _explained(text: str, *, in_meanings: bool) -> list[Word]:
    """The words that contain `text`, then, if wanted, those whose meanings do; only whole words match."""
    words = [word for section in glossary().sections.values() for word in section]
    named = [word for word in words if _has_word(text, word.word)]
    meant = [word for word in words if in_meanings and _has_word(text, word.meaning)]
    return list(dict.fromkeys([*named, *meant]))


def _has_word(word: str, text: str) -> bool:
    """True if `text` contains `word` as a whole word."""
    return bool(re.search(rf"(?<![a-z]){re.escape(word.lower())}(?![a-z])", text.lower()))


def _presets() -> Iterator[Entry]:
    about = {option.name: option for option in options(RunSpec)}
    named = {"method": "The training method.", "task": "The task.", "model": "Preset of a model's sizes."}
    for group, names in load.groups().items():
        meaning = named.get(group) or about[group].meaning
        yield Entry(group, meaning, load.read_default(group), ", ".join(names), IDENTITY)


def _settings() -> Iterator[Entry]:
    groups, known = load.groups(), load.keys()
    for option in options(RunSpec):
        if dataclasses.is_dataclass(option.default):
            yield from (_entry(f"{option.name}.{inner.name}", inner) for inner in options(type(option.default)))
        elif option.name in known and option.name not in groups:
            yield _entry(option.name, option)


def _options() -> Iterator[Entry]:
    for group, registry in kinds.KINDS.items():
        alike: dict[Entry, list[str]] = {}
        for name, kind in registry().items():
            for option in options(kind):
                alike.setdefault(_entry(f"{group}.{option.name}", option), []).append(name)
        yield from (dataclasses.replace(entry, owners=tuple(names)) for entry, names in alike.items())


def _entry(key: str, option: Option) -> Entry:
    return Entry(key, option.meaning, plain(option.default), option.allowed, option.role)


def suite() -> Schema:
    """The schema of `suites/NAME.yaml`."""
    schema = of(Suite)
    groups = load.groups()
    keys = [*load.keys(), *groups]
    override = {"type": "string", "pattern": f"^({'|'.join(map(re.escape, keys))})="}
    schema["properties"]["arms"] |= {"minProperties": 1, "additionalProperties": {"type": "array", "items": override}}
    swept = {key: {"type": "array", **({"items": _one_of(groups[key])} if key in groups else {})} for key in keys}
    sweep = {"type": "object", "properties": swept, "additionalProperties": False}
    schema["properties"]["sweep"] |= sweep
    schema["properties"]["sweep_at_scale"] |= {"additionalProperties": sweep}
    return titled("A suite of mcpo", schema | {"required": ["arms"]})


def model() -> Schema:
    """The schema of `conf/model/NAME.yaml`."""
    schema = of(Model)
    schema["properties"]["scale"] = {
        **_one_of(load.groups()["scale"]),
        "description": "Preset of `scale` that comes with an existing model where none is chosen.",
    }
    return titled("A model preset of mcpo", schema)


def preset() -> Schema:
    """The schema of `conf/regime/NAME.yaml` and `conf/scale/NAME.yaml`: any setting of a run, and other presets."""
    schema = of(RunSpec)
    properties = schema["properties"]
    del schema["required"], properties["plugins"]
    # A preset may derive it from the seed, as `smoke` does.
    properties["base_seed"] = {"anyOf": [properties["base_seed"], {"type": "string", "pattern": r"^\$\{.+\}$"}]}
    for group, registry in kinds.KINDS.items():
        properties[group] = _any(list(map(of, registry().values())))
    tasks = {name: of(kind) for name, kind in kinds.KINDS["task"]().items()}
    properties["tasks"] = {**of_keys(tasks), "description": "Options of a task, which apply if it is chosen."}
    presets = {f"override /{group}": _one_of(names) for group, names in load.groups().items()}
    properties["defaults"] = {"type": "array", "items": {"anyOf": [of_keys(presets), {"const": "_self_"}]}}
    return titled("A preset of mcpo", schema)


def of(kind: type) -> Schema:
    """The schema of a mapping that `convert` turns into the dataclass `kind`: types, bounds, defaults and meanings."""
    hints, meanings = typing.get_type_hints(kind), {option.name: option.meaning for option in options(kind)}
    properties, needed = {}, []
    for one in dataclasses.fields(kind):
        bounds = {BOUNDS[name]: bound for name, bound in one.metadata.items() if name in BOUNDS}
        properties[one.name] = {**_of_hint(hints[one.name]), **bounds}
        if meaning := meanings.get(one.name):
            properties[one.name]["description"] = meaning
        if one.default is not dataclasses.MISSING and not dataclasses.is_dataclass(one.default):
            properties[one.name]["default"] = plain(one.default)
        if one.default is one.default_factory is dataclasses.MISSING:
            needed.append(one.name)
    return {**of_keys(properties), **({"required": needed} if needed else {})}


def _of_hint(hint: Any) -> Schema:
    """The schema of the values that `convert` takes for a type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [{"type": "null"} if one is type(None) else _of_hint(one) for one in inner]}
    if origin is Literal:
        return _one_of(inner)
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of_hint(inner[1])}
    if origin is tuple:
        return {"type": "array", **_items(inner)}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return of(hint)
    return {} if hint is Any else {"type": TYPES[hint]}


def _items(inner: tuple[Any, ...]) -> Schema:
    if inner[-1] is Ellipsis:
        return {"items": _of_hint(inner[0])}
    return {"prefixItems": [_of_hint(one) for one in inner], "minItems": len(inner), "maxItems": len(inner)}


def _any(kinds: list[Schema]) -> Schema:
    """The schema of the options of any of `kinds`, because another file may choose among them."""
    declared: dict[str, list[Schema]] = {}
    for kind in kinds:
        for name, option in kind["properties"].items():
            if option not in declared.setdefault(name, []):
                declared[name].append(option)
    return of_keys({name: found[0] if len(found) == 1 else {"anyOf": found} for name, found in declared.items()})


def of_keys(properties: Schema) -> Schema:
    """The schema of a mapping that allows only the keys of `properties`."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _one_of(names: typing.Iterable[Any]) -> Schema:
    return {"enum": list(names)}


def titled(title: str, schema: Schema) -> Schema:
    """The schema of a file."""
    return {"$schema": DIALECT, "title": title, **schema}
