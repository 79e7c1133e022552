"""Settings of verl's own (`cluster.verl`), checked without importing verl and passed on to it as they are."""

import dataclasses
import difflib
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import SIMILAR, ConfigError

FORM = re.compile(r"(?P<add>\+?)(?P<key>[A-Za-z_]\w*(?:\.\w+)+)=(?P<value>.+)", re.DOTALL)
EXAMPLE = """cluster.verl='["actor_rollout_ref.model.enable_activation_offload=true"]'"""
REFERENCE = Path("trainer", "config", "_generated_ppo_trainer.yaml")
"""All keys of verl's configuration in one file of its package, which verl generates for reference."""
NAMED = 3
"""The most settings that a message names."""


def checked(spec: RunSpec, table: Callable[[RunSpec], Mapping[str, Any]]) -> tuple[str, ...]:
    """The overrides of `cluster.verl`.

    table: what mcpo itself sets for a run, verl's keys to values.

    Raises:
        ConfigError: one has another form, is given twice, sets what mcpo sets, or names a key that verl does not have.
    """
    seen = set[str]()
    for text in spec.cluster.verl:
        match = FORM.fullmatch(text)
        if match is None:
            raise ConfigError(f"cluster.verl: '{text}' is not KEY=VALUE in Hydra's grammar", fix=EXAMPLE)
        key = match["key"]
        if key in seen:
            raise ConfigError(f"cluster.verl: {key} is given twice", fix="give it once")
        seen.add(key)
        _not_ours(spec, key, table)
        if not match["add"]:
            _known(key, match["value"])
    return spec.cluster.verl


def given(spec: RunSpec) -> dict[str, str]:
    """Keys and values of `cluster.verl`, as text."""
    pairs = (text.partition("=") for text in spec.cluster.verl)
    return {key: value for key, _, value in pairs}


def _not_ours(spec: RunSpec, key: str, table: Callable[[RunSpec], Mapping[str, Any]]) -> None:
    """Refuses a key that mcpo sets, and one above or below such a key."""
    rows = table(spec)
    ours = {row.lstrip("+"): row for row in rows}
    row = next((ours[name] for name in ours if _within(name, key) or _within(key, name)), None)
    if row is None:
        return
    name, value = row.lstrip("+"), rows[row]
    owners = [path for path, other in _variants(spec) if table(other).get(row) != value]
    if 0 < len(owners) <= NAMED:
        raise ConfigError(f"cluster.verl: {name} is decided by {' and '.join(owners)}", fix=f"{owners[0]}=VALUE")
    raise ConfigError(
        f"cluster.verl: mcpo itself sets {name} (to {value}); its records or its results rely on it",
        fix=f"leave {key} out of cluster.verl",
    )


def _variants(spec: RunSpec) -> Iterator[tuple[str, RunSpec]]:
    """Each setting with a run in which it alone has another value; the run need not be valid."""
    for group in dataclasses.fields(spec):
        value = getattr(spec, group.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for one in dataclasses.fields(value):
                changed: Any = dataclasses.replace(value, **{one.name: _other(getattr(value, one.name))})
                yield f"{group.name}.{one.name}", dataclasses.replace(spec, **{group.name: changed})
        else:
            yield group.name, dataclasses.replace(spec, **{group.name: _other(value)})


def _other(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float() | None:
            return (value or 0) + 1
        case str():
            return f"{value}x"
        case tuple():
            return (*value, *(value[:1] or ("x",)))
    return value


def _known(key: str, value: str) -> None:
    """Refuses a key that verl does not have, where verl is installed; elsewhere verl itself will."""
    package = importlib.util.find_spec("verl")
    if package is None or package.origin is None:
        return
    keys = list(_keys(read_yaml(Path(package.origin).parent / REFERENCE)))
    if key in keys:
        return
    group, _, last = key.rpartition(".")
    siblings = {name.rpartition(".")[2]: name for name in keys if name.rpartition(".")[0] == group}
    same = [name for name in keys if name.rpartition(".")[2] == last]
    meant = [siblings[name] for name in difflib.get_close_matches(last, siblings, n=1, cutoff=SIMILAR)]
    meant = meant or difflib.get_close_matches(key, same, n=1, cutoff=0.0)
    fix = f"{meant[0]}={value}" if meant else f"+{key}={value}"
    raise ConfigError(
        f"cluster.verl: verl has no key {key}" + (f": did you mean '{meant[0]}'?" if meant else ""),
        fix=f"cluster.verl='[\"{fix}\"]'" + ("" if meant else "  (`+` adds a key that verl's files lack)"),
    )


def _within(key: str, group: str) -> bool:
    """Whether `key` is `group`, or is in it."""
    return f"{key}.".startswith(f"{group}.")


def _keys(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a configuration, groups included."""
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
