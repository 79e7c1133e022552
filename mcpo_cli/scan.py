"""Finding the plug-ins of a package: one new file in it is one new method, benchmark, table, ..."""

import importlib
import pkgutil
from types import ModuleType


def names(package: str) -> list[str]:
    """The modules of `package` (not of its sub-packages) by name, in alphabetical order; imports none of them."""
    parent = importlib.import_module(package)
    return sorted(info.name for info in pkgutil.iter_modules(parent.__path__) if not info.ispkg)


def modules(package: str) -> list[ModuleType]:
    """Import every module of `package` (not of its sub-packages), in alphabetical order."""
    return [importlib.import_module(f"{package}.{name}") for name in names(package)]
