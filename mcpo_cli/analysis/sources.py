"""Lists the source files that artifacts depend on: those of given modules and of all that they import."""

import ast
from collections.abc import Iterable, Mapping
from importlib.util import find_spec, resolve_name
from itertools import accumulate
from pathlib import Path

from mcpo_cli import study

SCANNER = "mcpo_cli.plugins"
"""A file that imports this module uses every module of some packages without importing them by name: of its own, if it
is an `__init__`, and those that it names in strings: packages and modules."""


def reached(roots: Iterable[str]) -> list[Path]:
    """The files of the modules `roots` and of all that they import, sorted by module name.

    Imports inside functions count. Modules of other packages do not: their version identifies them. The walk parses
    files and imports nothing, so it never loads torch.
    """
    waiting = set(roots)
    folders = {package: _folder(package) for package in {root.partition(".")[0] for root in waiting}}
    files: dict[str, Path | None] = {}
    while waiting:
        module = waiting.pop()
        files[module] = path = _file(_path(module, folders))
        names = _imports(module, path) if path else set()
        if SCANNER in names and path:
            scanned = {module, *_strings(path)} if path.name == "__init__.py" else _strings(path)
            names |= {name for one in scanned for name in _modules(one, folders)}
        for name in names:
            if name.partition(".")[0] in folders:
                # Importing a.b.c also runs a and a.b.
                waiting |= set(accumulate(name.split("."), "{}.{}".format)) - files.keys()
    return [path for _, path in sorted(files.items()) if path]


def _path(module: str, folders: Mapping[str, Path]) -> Path:
    """The path of a module without a suffix, given the folders that contain top-level packages."""
    top, _, inner = module.partition(f"{study.__name__}.")
    if inner and not top:
        return study.ROOT.joinpath(*inner.split("."))
    return folders[module.partition(".")[0]].joinpath(*module.split("."))


def _folder(package: str) -> Path:
    """The folder that contains a top-level package or module."""
    spec = find_spec(package)
    assert spec, package
    assert spec.origin, package
    return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]


def _file(path: Path) -> Path | None:
    """The file of a module, given its path without a suffix; None if the name is not a module's."""
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _imports(module: str, path: Path) -> set[str]:
    """Names that a file imports: modules, and names in them that may be modules."""
    is_package = path.name == "__init__.py"
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name(
                "." * node.level + (node.module or ""), module if is_package else module.rpartition(".")[0]
            )
            names.update([source, *(f"{source}.{alias.name}" for alias in node.names)])
    return names


def _strings(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _modules(package: str, folders: Mapping[str, Path]) -> list[str]:
    """The modules of `package`, by name, or the module that it is (`module:name` included); else none."""
    module = package.partition(":")[0]
    if module.partition(".")[0] not in folders:
        return []
    path = _path(module, folders)
    own = [module] if path.with_suffix(".py").is_file() else []
    return [*own, *(f"{module}.{file.stem}" for file in path.glob("*.py") if file.stem != "__init__")]
