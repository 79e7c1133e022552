"""Finding the plug-ins of a package: one new file in it is one new method, task, data set, table, ..."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any


def names(package: str) -> list[str]:
    """The modules of `package` (not of its sub-packages) by name, in alphabetical order; imports none of them."""
    parent = importlib.import_module(package)
    return sorted(info.name for info in pkgutil.iter_modules(parent.__path__) if not info.ispkg)


def modules(package: str) -> list[ModuleType]:
    """Import every module of `package` (not of its sub-packages), in alphabetical order."""
    return [importlib.import_module(f"{package}.{name}") for name in names(package)]


def classes(package: str, base: type, what: str) -> dict[str, Any]:
    """The classes derived from `base` that the modules of `package` define, by their `name`; one without is a base.

    Raises:
        TypeError: two share a name; `what` says of what.
    """
    found: dict[str, Any] = {}
    for module in modules(package):
        for value in vars(module).values():
            if not (isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__):
                continue
            name = getattr(value, "name", None)
            if name in found:
                raise TypeError(f"{what} name '{name}' is taken twice: {found[name]} and {value}")
            if name is not None:
                found[name] = value
    return found


def declared(package: str, attribute: str, what: str) -> dict[str, Any]:
    """What the modules of `package` declare under the name `attribute`, by its own `name`; others share code with them.

    Raises:
        TypeError: two share a name; `what` says of what.
    """
    found: dict[str, Any] = {}
    for module in modules(package):
        one = getattr(module, attribute, None)
        if one is None:
            continue
        if one.name in found:
            raise TypeError(f"{what} name '{one.name}' is taken twice, the second time in {module.__name__}")
        found[one.name] = one
    return found
