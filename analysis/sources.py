"""The source files that decide how an artifact comes out: those of its modules, and of all that these import."""

import ast
from collections.abc import Iterable, Iterator
from importlib.util import find_spec, resolve_name
from itertools import accumulate
from pathlib import Path

SCANNER = "mcpo_cli.plugins"
"""A package whose `__init__` imports it uses every module in its folder, without an import that names one."""


def reached(roots: Iterable[str]) -> list[Path]:
    """The files of the modules `roots` and of all that they import, in the order of the modules' names.

    Imports inside functions count. Only modules of the packages that the roots belong to do: what another library is,
    its version says. Nothing is imported for it, so that no walk loads torch.
    """
    waiting = set(roots)
    folders = {package: _folder(package) for package in {root.partition(".")[0] for root in waiting}}
    files: dict[str, Path | None] = {}
    while waiting:
        module = waiting.pop()
        package = module.partition(".")[0]
        files[module] = path = _file(folders[package].joinpath(*module.split(".")))
        for name in _imports(module, path) if path else ():
            if name.partition(".")[0] in folders:
                # An import of a.b.c runs a and a.b, too.
                waiting |= set(accumulate(name.split("."), "{}.{}".format)) - files.keys()
    return [path for _, path in sorted(files.items()) if path]


def _folder(package: str) -> Path:
    """The folder that a top-level package or module lies in."""
    spec = find_spec(package)
    assert spec, package
    assert spec.origin, package
    return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]


def _file(path: Path) -> Path | None:
    """The file of a module, from its path without a suffix; None where the name is a function's or a class's."""
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _imports(module: str, path: Path) -> Iterator[str]:
    """What a file imports: modules, and names in them that may be modules."""
    is_package = path.name == "__init__.py"
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), module if is_package else _parent(module))
            names.update([source, *(f"{source}.{alias.name}" for alias in node.names)])
    yield from names
    if is_package and SCANNER in names:
        yield from (f"{module}.{file.stem}" for file in path.parent.glob("*.py") if file != path)


def _parent(module: str) -> str:
    return module.rpartition(".")[0]
