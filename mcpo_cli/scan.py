"""Finding the plug-ins of a package: one new file in it is one new method, benchmark, table, ..."""

import importlib
import pkgutil
from types import ModuleType


def modules(package: str) -> list[ModuleType]:
    """Import every module of `package` (not of its sub-packages), in alphabetical order."""
    parent = importlib.import_module(package)
    names = sorted(info.name for info in pkgutil.iter_modules(parent.__path__) if not info.ispkg)
    return [importlib.import_module(f"{package}.{name}") for name in names]
