"""Lookup by name of methods, tasks, data, graders, probes, tables, figures, readers, presets, suites, claims.

Three places are searched. The packages of mcpo: one new file is one new method. Installed packages, by entry points of
the groups `mcpo.methods`, `mcpo.tasks` and so on, each of which names a module, or a package whose modules
and packages are searched (as for mcpo's own `literature_methods`); `mcpo.experiments` names a package with the folders
`suites`, `conf` and `claims`, or with a folder for each study that has them. The folders of MCPO_PLUGINS: files `*.py`
that declare anything, and suites, presets and claims laid out in the same way.

Declarations from the last two places are plug-ins, unless mcpo's own distribution has them. Their names, versions and
hashes are in the records of runs. A plug-in that fails is left out with a message, and `mcpo doctor` shows it.
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import pkgutil
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, distribution, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, Self, TypeVar

from mcpo_cli import code_digest, paths, plugin_files, settings
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, first_line
from mcpo_cli.redaction import redact

T = TypeVar("T")
N = TypeVar("N", bound="Named")
OWN = "mcpo-cli"
"""The distribution whose entry points are not plug-ins."""
NEWEST = "mcpo_cli.reasoning_gym.task"
"""The module of the newest entry point: an installation without it is older than this code."""
EXPERIMENTS = "experiments"
DATA = ("suites/*.yaml", "conf/*/*.yaml", "claims/*.yaml")
SIBLINGS = re.compile(r"^\s*(from\s+\.|(from|import)\s+mcpo_cli\.plugin_files\b)", re.MULTILINE)
_problems: dict[str, None] = {}


class Named(Protocol):
    """A declaration that is one object."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Plugin:
    """The identity of a plug-in."""

    name: str
    """Name of the distribution, or of the file in its folder of MCPO_PLUGINS."""
    version: str
    """Version of the distribution; empty for a file."""
    sha256: str
    """Hash of the file, or of all files of the distribution's packages that entry points name; see `code_digest`."""


class Found(dict[str, T]):
    """Declarations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.plugins: dict[str, Plugin] = {}
        """By name: the plug-in that declares it."""
        self.sources: dict[str, list[Path]] = {}
        """By name: the files of the package of mcpo's own distribution that declares it."""


@dataclass(frozen=True)
class Candidate:
    """A module with declarations; not imported yet."""

    module: str
    name: str
    """Name of the module in its package or folder, or of the entry point."""
    entry: EntryPoint | None = None
    path: Path | None = None
    """Path of a file in a folder of MCPO_PLUGINS."""

    @property
    def plugin(self) -> Plugin | None:
        """None for a module of mcpo."""
        if self.path:
            return of_file(self.path)
        return None if self.is_own else _distribution(_owner(self.entry))

    @property
    def is_own(self) -> bool:
        """True if mcpo's own distribution declares it."""
        return not self.path and _owner(self.entry) in ("", OWN)

    @property
    def modules(self) -> list[Self]:
        """The modules and packages in the package that an entry point names; empty if it names a module."""
        spec = importlib.util.find_spec(self.module)
        locations = spec.submodule_search_locations if spec and self.entry else None
        names_inside = sorted(info.name for info in pkgutil.iter_modules(locations or []))
        return [dataclasses.replace(self, module=f"{self.module}.{name}", name=name) for name in names_inside]

    @property
    def source(self) -> str:
        """The module's file, for messages."""
        spec = importlib.util.find_spec(self.module)
        return str(spec.origin if spec else self.module)

    def load(self) -> ModuleType:
        """Import the module."""
        if self.entry and self.entry.attr:
            raise ImportError(f"the entry point {self.entry.value} must name a module, without '{self.entry.attr}'")
        if self.path:
            if self.source != str(self.path):
                target = self.path.with_stem(f"{self.path.stem}_{re.sub(r'[^A-Za-z0-9]', '_', self.path.parent.name)}")
                fix = shlex.join(["mv", str(self.path), str(target)])
                raise ImportError(f"{self.source} has the same name (fix: {fix})")
            # Else its hash would not cover all of its code.
            if SIBLINGS.search(self.path.read_text(encoding="utf-8")):
                raise ImportError(
                    "a file of a plug-in folder cannot import another one; put both into an installed package"
                )
        return importlib.import_module(self.module)


def names(package: str) -> list[str]:
    """The modules of `package` (not of its sub-packages) by name, in alphabetical order; imports none of them.

    Empty if `package` is a module.
    """
    locations = getattr(importlib.import_module(package), "__path__", [])
    return sorted(info.name for info in pkgutil.iter_modules(locations) if not info.ispkg)


def find(group: str, packages: Sequence[str], declared: Callable[[Candidate], Iterable[tuple[str, T]]]) -> Found[T]:
    """All declarations that `declared` finds in mcpo's `packages` and in plug-ins of the entry points `mcpo.<group>`.

    Raises:
        ConfigError: two declarations share a name.
    """
    classes: Found[T] = Found()
    declaring: dict[str, Candidate] = {}
    kind = group.removesuffix("s")

    def work(candidate: Candidate) -> list[tuple[str, T]]:
        components = list(declared(candidate)) or [
            component for module in candidate.modules for component in declared(module)
        ]
        if candidate.entry and not components and not candidate.is_own:
            raise TypeError(f"it declares no {kind}")
        return components

    for candidate in _candidates(group, packages):
        for name, declaration in _attempt(candidate, work) or []:
            if name in classes:
                raise taken(f"{kind} '{name}'", declaring[name].source, candidate.source)
            classes[name], declaring[name] = declaration, candidate
            if candidate.plugin:
                classes.plugins[name] = candidate.plugin
            elif candidate.entry:
                classes.sources[name] = _sources(candidate.entry.module)
    return classes


@cache
def _sources(module: str) -> list[Path]:
    """The files of the package `module`."""
    spec = importlib.util.find_spec(module)
    locations = [Path(name) for name in (spec.submodule_search_locations if spec else None) or []]
    files = (path for location in locations for path in location.rglob("*") if path.is_file())
    return sorted(path for path in files if "__pycache__" not in path.parts)


def classes(group: str, package: str, base: type) -> Found[Any]:
    """The classes derived from the dataclass `base` that have a `name`, by name. All options must have defaults."""

    def declared(candidate: Candidate) -> Iterator[tuple[str, Any]]:
        module = candidate.load()
        members: list[Any] = [
            member for member in vars(module).values() if getattr(member, "__module__", "") == module.__name__
        ]
        for value in members:
            if isinstance(value, type) and issubclass(value, base) and hasattr(value, "name"):
                options: Any = value()
                for remark in settings.untyped(value):
                    warn(remark)
                defaults = dataclasses.asdict(options)
                json.dumps(defaults)  # they are written down with every run
                if not candidate.is_own:
                    convert(value, defaults, group.removesuffix("s"))
                yield value.name, value

    components = find(group, (package,), declared)
    for name in sorted(components):
        components[name] = components.pop(name)
    return components


def objects(group: str, packages: Sequence[str], attribute: str, kind: type[N]) -> Found[N]:
    """The objects that modules declare, by their `name`: one as `attribute`, several as a tuple `<attribute>S`.

    A module that declares neither shares code with others.
    """

    def declared(candidate: Candidate) -> Iterator[tuple[str, N]]:
        module: Any = candidate.load()
        single = [getattr(module, attribute)] if hasattr(module, attribute) else []
        for component in (*single, *getattr(module, f"{attribute}S", ())):
            if not isinstance(component, kind):
                raise TypeError(f"{attribute} must be a {kind.__name__}, not {type(component).__name__}")
            yield component.name, component

    return find(group, packages, declared)


def taken(what: str, first: str | Path, second: str | Path) -> ConfigError:
    """The error of a name that two files claim."""
    return ConfigError(
        f"the {what} is declared twice: {first} and {second}", fix="rename one, or remove it", code="duplicate_name"
    )


def folders() -> list[Path]:
    """The folders of MCPO_PLUGINS; a path that cannot be a folder is left out with a message."""
    folder_paths = list[Path]()
    for name in plugin_files.__path__:
        try:
            folder_paths.append(paths.named(name))
        except ConfigError as error:
            warn(f"{plugin_files.VARIABLE}: {error.message}")
            continue
        if not folder_paths[-1].is_dir():
            warn(f"{plugin_files.VARIABLE}: there is no folder {name}")
    return folder_paths


@cache
def roots() -> tuple[Path, ...]:
    """The folders of plug-ins that have suites, presets and claims, mcpo's own distribution first."""
    return (*own_roots(), *_roots(is_own=False), *folders())


@cache
def own_roots() -> tuple[Path, ...]:
    """The roots of mcpo's own distribution. Their suites have only the tables that an artifact declares."""
    return tuple(_roots(is_own=True))


def _roots(*, is_own: bool) -> Iterator[Path]:
    """The folders of the packages that entry points name."""

    def locations(candidate: Candidate) -> list[Path]:
        spec = importlib.util.find_spec(candidate.module)
        if spec is None or not spec.submodule_search_locations:
            raise ImportError(f"{candidate.module} is not a package")
        return [Path(name) for name in spec.submodule_search_locations]

    packages = [Candidate(entry.module, entry.name, entry) for entry in _entries(EXPERIMENTS)]
    return (path for package in packages if package.is_own == is_own for path in _attempt(package, locations) or [])


def data_files(root: Path, pattern: str) -> list[Path]:
    """The files that match `pattern` in a folder of plug-ins, or in the folder of a study there."""
    return [*_files(root, pattern), *_files(root, f"*/{pattern}")]


@cache
def present() -> tuple[Plugin, ...]:
    """All plug-ins by name, including plug-ins that fail."""
    owners = {_owner(entry) for entry in _declared()} - {OWN}
    files = [(path, folder) for folder in folders() for path in _files(folder, "*.py")]
    files += [(path, folder) for folder in folders() for kind in DATA for path in data_files(folder, kind)]
    all_plugins = [*map(_distribution, owners), *(of_file(*pair) for pair in files)]
    return tuple(sorted(all_plugins, key=lambda plugin: (plugin.name, plugin.sha256)))


def _files(folder: Path, pattern: str) -> list[Path]:
    """The files of a plug-in folder, by name; reading anything else, such as a pipe, may never end."""
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def warn(problem: str) -> None:
    """Print a message once per process."""
    text = redact(problem)
    if text not in _problems:
        _problems[text] = None
        sys.stderr.write(f"warning: {text}\n")


def problems() -> list[str]:
    """Errors of plug-ins so far."""
    return list(_problems)


def _candidates(group: str, packages: Sequence[str]) -> Iterator[Candidate]:
    for package in packages:
        modules = names(package)
        yield from (Candidate(f"{package}.{name}", name) for name in modules)
        if not modules:
            yield Candidate(package, package.rpartition(".")[2])
    candidates = (Candidate(entry.module, entry.name, entry) for entry in _entries(group))
    # A wheel lacks packages of studies that a checkout has.
    yield from (candidate for candidate in candidates if not candidate.is_own or _exists(candidate.module))
    for folder in folders():
        for path in _files(folder, "*.py"):
            yield Candidate(f"{plugin_files.__name__}.{path.stem}", path.stem, path=path)


def _exists(module: str) -> bool:
    """True if there is such a module; an older installation may name one whose package is gone."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _attempt(candidate: Candidate, work: Callable[[Candidate], T]) -> T | None:
    """`work(candidate)`; a message and None if a plug-in fails, whatever it raises.

    What a plug-in prints meanwhile goes to standard error, because standard output is the command's own, such as JSON.
    """
    if candidate.is_own:
        return work(candidate)
    try:
        with redirect_stdout(sys.stderr):
            return work(candidate)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        warn(f"plug-in {_blamed(candidate, error)}: {type(error).__name__}: {first_line(error)}; it is left out")
    return None


def _blamed(candidate: Candidate, error: BaseException) -> str:
    """The file and line of the plug-in at which `error` left it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    return raised_at(error) or str(candidate.path or f"{candidate.module} of {_owner(candidate.entry)}")


def raised_at(error: BaseException) -> str:
    """The file and line of the plug-in that raised `error`, or that called what raised it; empty if none did."""
    packages = {entry.module.partition(".")[0] for entry in _declared() if _owner(entry) != OWN}
    inside = tuple(f"{package}." for package in (plugin_files.__name__, *packages))
    lines = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if f"{frame.f_globals.get('__name__')}.".startswith(inside)
    ]
    return lines[-1] if lines else ""


def described(error: BaseException) -> str:
    """`error` in a line, after the file and line of the plug-in that raised it, if one did."""
    return ": ".join(filter(None, (raised_at(error), type(error).__name__, first_line(error))))


@cache
def _declared() -> list[EntryPoint]:
    points = entry_points()
    entries = [entry for group in points.groups if group.startswith("mcpo.") for entry in points.select(group=group)]
    if NEWEST not in [entry.value for entry in entries if _owner(entry) == OWN]:
        warn("mcpo was installed by an older version, so methods or tasks are missing: run `make setup`")
    return entries


def _entries(group: str) -> list[EntryPoint]:
    return [entry for entry in _declared() if entry.group == f"mcpo.{group}"]


def _owner(entry: EntryPoint | None) -> str:
    """The distribution that declares an entry point."""
    return str(entry.dist.name) if entry and entry.dist else ""


@cache
def _distribution(name: str) -> Plugin:
    top_packages = {entry.module.partition(".")[0] for entry in _declared() if _owner(entry) == name}
    content = hashlib.sha256()
    for spec in filter(None, map(importlib.util.find_spec, sorted(top_packages))):
        parents = [Path(folder) for folder in spec.submodule_search_locations or []]
        files = [path for parent in parents for path in sorted(parent.rglob("*")) if path.is_file()]
        for path in files or [Path(str(spec.origin))]:
            if "__pycache__" not in path.parts:
                content.update(f"{path.relative_to(parents[0].parent) if parents else path.name}\0".encode())
                content.update(bytes.fromhex(code_digest.digest(path)))
    return Plugin(name, distribution(name).version, content.hexdigest())


@cache
def of_file(path: Path, folder: Path | None = None) -> Plugin:
    """The identity of a file, named relative to `folder`, by default its own folder."""
    return Plugin(path.relative_to(folder or path.parent).as_posix(), "", code_digest.digest(path))
