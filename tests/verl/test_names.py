"""Every name of verl that is used is in the tables of `test_parts.py`, with its signature."""

import ast
import importlib
import inspect
from abc import ABC
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpo_cli.backends import verl
from tests.verl.test_parts import CLASSES, FUNCTIONS, found_in

pytestmark = pytest.mark.verl
FILES = sorted(Path(verl.__file__).parent.glob("*.py"))


def imported() -> Iterator[str]:
    """`module:name` for every name that our files import from verl."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "verl":
                yield from (f"{node.module.removeprefix('verl.')}:{name.name}" for name in node.names)


def classes() -> Iterator[tuple[type, str]]:
    """Our classes that derive from verl's, with the places of these."""
    for path in FILES:
        module = importlib.import_module(f"{verl.__name__}.{path.stem}")
        for found in vars(module).values():
            if inspect.isclass(found) and found.__module__ == module.__name__:
                yield from ((found, place) for place in CLASSES if issubclass(found, found_in(place)))


def test_every_name_that_is_imported_is_in_a_table() -> None:
    listed = {*FUNCTIONS, *CLASSES}
    found = set(imported())
    assert len(found) > 15
    # For a module, and for a class that is not made here, its used attributes are listed.
    assert [name for name in found if not any(one.startswith((name, name.replace(":", "."))) for one in listed)] == []


def test_every_method_that_is_overridden_or_called_is_in_a_table_and_every_attribute_is_set_by_verl() -> None:
    seen = list(classes())
    assert len(seen) >= len(CLASSES)
    for owner, place in seen:
        # Members that a class of ours inherits from another one of ours are also ours.
        ours = [one for one in owner.__mro__ if one.__module__.startswith("mcpo_cli")]
        base = found_in(place)
        # verl sets attributes of classes at run time: only what our text names is ours.
        own = {name for one in ours for name in vars(one) if name in inspect.getsource(one)}
        source = "".join(inspect.getsource(one) for one in base.__mro__ if one.__module__.startswith("verl"))
        read = {
            node.attr: isinstance(node.ctx, ast.Store)
            for node in sorted(
                (
                    node
                    for one in ours
                    for node in ast.walk(ast.parse(inspect.getsource(one)))
                    if isinstance(node, ast.Attribute)
                ),
                key=lambda node: isinstance(node.ctx, ast.Store),
            )
            if isinstance(node.value, ast.Name | ast.Call) and ast.unparse(node.value) in ("self", "super()")
        }
        methods = {name for name in own | set(read) if hasattr(base, name)} - set(dir(ABC)) - {"__annotations__"}
        assert methods - set(CLASSES[place]) == set(), owner
        elsewhere = {name for name, is_set in read.items() if not is_set} - own - methods - set(dir(ABC))
        assert [name for name in elsewhere if f"self.{name} = " not in source and f"self.{name}: " not in source] == []
