"""Finding the plug-ins of a package: one new file in it is one new method, benchmark, table, ..."""

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


def declared(package: str, attribute: str, what: str) -> dict[str, Any]:
    """What the modules of `package` declare, by its own `name`: one as `attribute`, several as a tuple `<attribute>S`.

    A module that declares neither shares code with the others.

    Raises:
        TypeError: two share a name; `what` says of what.
    """
    found: dict[str, Any] = {}
    for module in modules(package):
        single = [getattr(module, attribute)] if hasattr(module, attribute) else []
        for one in (*single, *getattr(module, f"{attribute}S", ())):
            if one.name in found:
                raise TypeError(f"{what} name '{one.name}' is taken twice, the second time in {module.__name__}")
            found[one.name] = one
    return found
