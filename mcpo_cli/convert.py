"""Converts plain data to frozen dataclasses; each error names the path, the value and the fix."""

import dataclasses
import math
import operator
import re
import types
import typing
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from mcpo_cli.errors import ConfigError, mend, nearest

T = TypeVar("T")
SWITCH = {"on": True, "yes": True, "off": False, "no": False}
"""Words that YAML reads as true or false but Hydra's grammar reads as text."""
CALLED = {"gpu": "cuda"}
"""Names of choices elsewhere and mcpo's names, for errors: by spelling, `gpu` would suggest `cpu`, its opposite."""
RANGE = re.compile(r"(\d+) *(?:\.\.+|-|:) *(\d+)")
"""Integers from one to another, as people write them."""
LARGEST_INT, LARGEST_FLOAT = 2**31 - 1, 3.4e38
"""The largest 32-bit values, because computations use settings as 32-bit numbers."""
DEFAULT = "  (the default)"
"""End of a fix that sets the default."""
BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": (">=", operator.ge),
    "gt": (">", operator.gt),
    "le": ("<=", operator.le),
    "lt": ("<", operator.lt),
}


def convert(cls: type[T], data: Mapping[str, Any], path: str, **ready: Any) -> T:
    """Builds dataclass `cls` from `data` and the `ready` values; absent fields keep their defaults.

    A field's metadata holds its bounds as `ge`, `gt`, `le` and `lt`.

    Raises:
        ConfigError: unknown key, wrong type, a value out of bounds or not among the choices, or a key is missing.
    """
    fields = {field.name: field for field in dataclasses.fields(cast(Any, cls))}
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in data.items():
        place = f"{path}.{key}" if path else key
        if key not in fields:
            paths = [f"{path}.{name}" if path else name for name in fields]
            fix = mend("{} in its place", place, paths, f"leave out {place}")
            raise ConfigError(f"unknown key '{place}': {nearest(place, paths)}", fix=fix, code="unknown_key")
        try:
            values[key] = _typed(hints[key], value, place)
            _check_bounds(values[key], fields[key].metadata, place)
        except ConfigError as error:
            raise ConfigError(error.message, fix=error.fix or _default(fields[key], place), code=error.code) from error
    arguments = values | ready
    if missing_names := [name for name, field in fields.items() if name not in arguments and _is_required(field)]:
        raise ConfigError(f"{', '.join(f'{path}.{name}' if path else name for name in missing_names)} must be given")
    return cls(**arguments)


def choose(kinds: Mapping[str, type[T]], what: str, name: str, options: Mapping[str, Any], fix: str | None = None) -> T:
    """An instance of the dataclass called `name` in `kinds`; `options` replace its defaults.

    Args:
        what: names the kind in messages and paths: `method`, `task`.

    Raises:
        ConfigError: unknown name (`fix` corrects it), unknown option, or an option value out of its range.
    """
    if name not in kinds:
        raise ConfigError(f"unknown {what} '{name}': {nearest(name, kinds)}", fix=fix, code="unknown_name")
    return convert(kinds[name], options, what)


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _typed(hint: Any, value: Any, path: str) -> Any:
    """`value` checked against type `hint`; converts int to float, list to tuple and `on`/`off`/`yes`/`no` to bool."""
    origin = get_origin(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            names = [field.name for field in dataclasses.fields(hint)]
            fix = f"{path}.{names[0]}=VALUE  (its settings: {', '.join(names)})"
            raise _wrong_type(path, value, "a group of settings", fix)
        return convert(hint, value, path)
    choices = [choice for choice in get_args(hint) if choice is not type(None)]
    if origin in (Union, types.UnionType) and len(choices) == 1:
        return None if value is None else _typed(choices[0], value, path)
    if origin is Literal:
        # The types must match too, because True == 1.
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            names = [str(choice) for choice in choices]
            spelling = CALLED.get(str(value).lower(), str(value))
            raise ConfigError(
                f"{path}={value}: {nearest(spelling, names)}",
                fix=mend(path + "={}", spelling, names),
                code="out_of_bounds",
            )
        return value
    if origin in (Mapping, tuple):
        return _several(get_args(hint), value, path, is_mapping=origin is Mapping)
    if hint is Any:
        return value
    if not isinstance(hint, type):
        raise TypeError(
            f"{path}: no setting has the type {hint}; write bool, int, float, str, Literal, tuple or Mapping"
        )
    return _scalar(hint, value, path)


def _several(hints: tuple[Any, ...], value: Any, path: str, *, is_mapping: bool) -> Any:
    """A mapping with names as keys, or a list, with items of the types `inner`."""
    if is_mapping:
        if not (isinstance(value, Mapping) and all(isinstance(name, str) for name in value)):
            raise _wrong_type(path, value, "a mapping of names to values")
        return {_scalar(str, name, path): _typed(hints[1], item, f"{path}.{name}") for name, item in value.items()}
    if not isinstance(value, list | tuple):
        items = ",".join(f"{name}={item}" for name, item in value.items()) if isinstance(value, Mapping) else value
        raise _wrong_type(path, value, "a list", fix=f"{path}=[{items}]" if value else None)
    kinds = [hints[0]] * len(value) if hints[-1] is Ellipsis else list(hints)
    if len(kinds) != len(value):
        raise ConfigError(f"{path}={value}: must be a list of {len(kinds)} values, not of {len(value)}")
    return tuple(_typed(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _scalar(hint: type, value: Any, path: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= LARGEST_FLOAT:
            raise ConfigError(f"{path}={value}: must be a finite number, at most {LARGEST_FLOAT:g}")
        return float(value)
    if hint is int and isinstance(value, float) and math.isfinite(value):
        raise ConfigError(f"{path}={value}: must be an integer", fix=f"{path}={round(value)}")
    if hint is bool and str(value).lower() in SWITCH:
        return SWITCH[str(value).lower()]
    if hint is int and type(value) is int and abs(value) > LARGEST_INT:
        raise ConfigError(f"{path}={value}: must be an integer of at most {LARGEST_INT}")
    if hint is str and isinstance(value, str) and any(unicodedata.category(sign) in ("Cc", "Cs") for sign in value):
        raise ConfigError(f"{path}={value!r}: must be text without control characters")
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    names = {int: "an integer", float: "a number", bool: "true or false", str: "text"}
    is_list = isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)
    fix = f"{path}={','.join(map(str, value))}  (a sweep)" if is_list and value else None
    if hint is int and (match := RANGE.fullmatch(str(value))):
        fix = f"{path}=range({match[1]},{int(match[2]) + 1})  (a sweep)"
    if hint is str and isinstance(value, bool | int | float):
        fix = f"{path}='\"{value}\"'"
    raise _wrong_type(path, value, names.get(hint, hint.__name__), fix)


def _wrong_type(path: str, value: Any, requirement: str, fix: str | None = None) -> ConfigError:
    return ConfigError(f"{path}={value}: must be {requirement}, not {type(value).__name__}", fix=fix)


def _check_bounds(value: Any, metadata: Mapping[str, Any], path: str) -> None:
    for name, (sign, holds) in BOUNDS.items():
        if name in metadata and value is not None and not holds(value, metadata[name]):
            bound = metadata[name]
            fix = f"{path}={bound}" if name in ("ge", "le") else None
            raise ConfigError(f"{path}={value}: must be {sign} {bound}", fix=fix, code="out_of_bounds")


def _default(field: "dataclasses.Field[Any]", path: str) -> str | None:
    """The override that sets the default, which is always valid."""
    value = field.default
    if value is dataclasses.MISSING or dataclasses.is_dataclass(value):
        return None
    text = str(value).lower() if isinstance(value, bool) else str(list(value) if isinstance(value, tuple) else value)
    return f"{path}={text}{DEFAULT}"
