"""What a method says of itself: the first line and the text of its module, and its options with their meanings."""

import ast
import dataclasses
import inspect
import itertools
import math
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mcpo_cli.methods.base import Method

SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True)
class Option:
    """One option of a method."""

    name: str
    default: Any
    allowed: str
    """Its choices or its bounds; empty where any value of its type will do."""
    meaning: str


def text(method: type[Method]) -> str:
    """The docstring of the method's module: source, formula, defaults, edge cases, disagreements."""
    return inspect.getdoc(sys.modules[method.__module__]) or ""


def options(method: type[Method]) -> list[Option]:
    """The options of a method, in the order of its fields; one with a single value is none."""
    hints, meanings = typing.get_type_hints(method), _meanings(method)
    found = []
    for field in dataclasses.fields(method):
        choices = typing.get_args(hints[field.name]) if typing.get_origin(hints[field.name]) is Literal else ()
        if len(choices) != 1:
            bounds = [f"{SIGNS[name]} {value:g}" for name, value in field.metadata.items() if name in SIGNS]
            allowed = ", ".join(map(str, choices)) or ", ".join(bounds)
            found.append(Option(field.name, field.default, allowed, meanings.get(field.name, "")))
    return found


def backends(method: Method) -> dict[str, str]:
    """Each backend with what it asks of this method; a backend that cannot train it is not there."""
    whole = "one mini-batch a step (train.mini_batch=train.prompts)" if method.prepares else ""
    return {"local": ""} | ({} if "previous_policy" in method.needs else {"verl": whole})


def curve(method: Method, rollouts: int) -> list[tuple[float, float]]:
    """(p, W(p)) for each accuracy that a group of `rollouts` can have; empty for a method without a curve."""
    points = [right / rollouts for right in range(rollouts + 1)]
    weights = [float(method.query_weight(p, rollouts)) for p in points]
    return [] if any(map(math.isnan, weights)) else list(zip(points, weights, strict=True))


def _meanings(method: type[Method]) -> Mapping[str, str]:
    """The text literal under each field, of the class itself or else of the nearest it derives from."""
    found: dict[str, str] = {}
    for kind in reversed(method.__mro__):
        if dataclasses.is_dataclass(kind):
            (body,) = (node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
            for field, below in itertools.pairwise(body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                        found[name] = " ".join(meaning.split())
    return found
