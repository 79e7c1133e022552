"""Declares the fields of settings: IDENTITY (changes the result, enters the run id) or RUNTIME (does not).

`options` reads back the declarations of a class of settings: defaults, bounds, and the text under each field;
`docstring` reads its description.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

IDENTITY, RUNTIME = "identity", "runtime"
SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def identity(default: Any, **bounds: float) -> Any:
    """A field that changes the result."""
    return field(default=default, metadata={"role": IDENTITY, **bounds})


def later(default: Any, **bounds: float) -> Any:
    """A field that changes the result and was added after runs had been recorded.

    At its default it stays out of run ids, so that recorded ids remain valid.
    """
    return field(default=default, metadata={"role": IDENTITY, "later": True, **bounds})


def runtime(default: Any, **bounds: float) -> Any:
    """A field that does not change the result, only where and how fast it is computed."""
    return field(default=default, metadata={"role": RUNTIME, **bounds})


def plain(value: Any, *, runtime_too: bool = True, later_too: bool = True) -> Any:
    """A dataclass as nested plain data; any other value unchanged.

    runtime_too: with RUNTIME fields. later_too: with fields declared by `later` that have their defaults.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return {
        f.name: plain(getattr(value, f.name), runtime_too=runtime_too, later_too=later_too)
        for f in dataclasses.fields(value)
        if (runtime_too or f.metadata.get("role") != RUNTIME)
        and (later_too or "later" not in f.metadata or getattr(value, f.name) != f.default)
    }


def flat(data: Mapping[str, Any], prefix: str = "", whole: str = "") -> dict[str, Any]:
    """Nested mappings as one level, with keys joined by dots. whole: a key whose mapping stays one value."""
    flattened: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        is_group = isinstance(value, Mapping) and name != whole
        flattened |= flat(value, f"{name}.", whole) if is_group else {name: value}
    return flattened


@dataclass(frozen=True)
class Option:
    """One field of a class of settings."""

    name: str
    default: Any
    allowed: str
    """Its choices or its bounds; empty if any value of its type is valid."""
    meaning: str
    role: str
    """IDENTITY or RUNTIME."""


def options(kind: type) -> list[Option]:
    """The options of a dataclass, in the order of its fields, without fields that allow a single value."""
    hints, meanings = typing.get_type_hints(kind), _meanings(kind)
    entries = []
    for member in dataclasses.fields(kind):
        choices = typing.get_args(hints[member.name]) if typing.get_origin(hints[member.name]) is Literal else ()
        if len(choices) != 1:
            bounds = [f"{SIGNS[name]} {value:g}" for name, value in member.metadata.items() if name in SIGNS]
            allowed = ", ".join(map(str, choices)) or ", ".join(bounds)
            role = member.metadata.get("role", IDENTITY)
            entries.append(Option(member.name, member.default, allowed, meanings.get(member.name, ""), role))
    return entries


def untyped(kind: type) -> Iterator[str]:
    """A remark on each constant of the class of settings `kind` that may be meant as an option.

    Raises:
        TypeError: something is written as an option is, and is none.
    """
    fields, types = {member.name for member in dataclasses.fields(kind)}, vars(kind).get("__annotations__", {})
    if "name" in fields:
        raise TypeError(f"{kind.__name__}.name is an option: write name: ClassVar[str]")
    for name, hint in types.items():
        if name not in fields and "ClassVar" not in str(hint):
            raise TypeError(f"{kind.__name__}.{name} is an option only below @dataclass(frozen=True)")
    inherited = {name for base in kind.__mro__[1:] for name in {**vars(base), **vars(base).get("__annotations__", {})}}
    for name, value in vars(kind).items():
        if name in types or name.startswith("_") or callable(value) or hasattr(value, "__get__"):
            continue
        typed = f"{name}: {type(value).__name__} = {value!r}"
        if name in fields:
            raise TypeError(f"{kind.__name__}.{name} has no type, so the option keeps its default: write {typed}")
        if name not in inherited:
            yield f"{kind.__name__}.{name} has no type: an option is {typed}, another constant {name}: ClassVar"


def docstring(kind: type) -> str:
    """The docstring of a class of settings; empty if it has none (a dataclass then has its signature as docstring)."""
    text = inspect.getdoc(kind) or ""
    return "" if text.startswith(f"{kind.__name__}(") else text


def summary(text: str) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join(text.partition("\n\n")[0].split())


def _meanings(kind: type) -> Mapping[str, str]:
    """The text literal under each field, of the class itself or else of the nearest class that it derives from."""
    bases = [base for base in reversed(kind.__mro__) if dataclasses.is_dataclass(base)]
    return {name: meaning for base in bases for name, meaning in _own_meanings(base).items()}


@functools.cache
def _own_meanings(kind: type) -> Mapping[str, str]:
    """The text literal under each field that the class itself declares; finding its source parses its whole file."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
    meanings: dict[str, str] = {}
    for statement, next_statement in itertools.pairwise(body):
        match statement, next_statement:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                meanings[name] = " ".join(meaning.split())
    return meanings
