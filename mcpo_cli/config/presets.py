"""What an override may name: presets, classes, and settings with the options of classes.

`method=NAME`, `sampler=NAME` and `task=NAME` choose a class, `model=`, `regime=` and `scale=` a preset (a YAML file).
"""

import dataclasses
import difflib
import functools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from mcpo_cli import data as datasets
from mcpo_cli import methods, paths, plugins, prompt_samplers, tasks
from mcpo_cli.config.reading import read_yaml, short
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import SIMILAR, ConfigError, mend, nearest
from mcpo_cli.plugins import Found
from mcpo_cli.settings import flat, plain

CONF = Path(__file__).resolve().parents[1] / "conf"
CLASSES: dict[str, Callable[[], Found[type]]] = {
    "method": methods.registry,
    "sampler": prompt_samplers.registry,
    "task": tasks.registry,
}
"""The groups whose values are classes: `method=mcpo` chooses a class, and `method.beta` is one of its options."""
CHOSEN = {f"{group}.name" for group in CLASSES}
"""Keys that choose a class in files."""
MOST_FILES = 200
"""Largest number of Python files that are searched for an unknown name."""


@functools.cache
def groups() -> dict[str, list[str]]:
    """The names that each group accepts: methods, tasks, and the presets of `model=`, `regime=` and `scale=`."""
    names = {group: sorted(registry()) for group, registry in CLASSES.items()}
    for folder in sorted(filter(Path.is_dir, CONF.iterdir())):
        names[folder.name] = sorted(files(f"conf/{folder.name}/*.yaml"))
    return names


def files(pattern: str) -> dict[str, Path]:
    """The files that match `pattern` in mcpo and plug-ins, or in a folder of a plug-in, by file name without suffix.

    So `suites/*.yaml` and `STUDY/suites/*.yaml` are both found: a plug-in may have a folder for each of its studies.

    Raises:
        ConfigError: two files share a name.
    """
    by_name: dict[str, Path] = {}
    candidates = sorted(CONF.parent.glob(pattern))
    for root in plugins.roots():
        candidates += plugins.data_files(root, pattern)
    for path in candidates:
        if path.stem in by_name:
            raise plugins.taken(pattern.replace("*.yaml", path.name), by_name[path.stem], path)
        by_name[path.stem] = path
    return by_name


def file(group: str, name: str) -> Path:
    """The file of a preset."""
    return paths.named(name) if is_file(name) else files(f"conf/{group}/*.yaml")[name]


def is_file(name: str) -> bool:
    """True if `name` is the path of a YAML file rather than the name of a preset, a suite or claims."""
    return name.endswith((".yaml", ".yml"))


def stem(name: str) -> str:
    """`name` itself, or the name of the YAML file at that path."""
    return Path(name).stem if is_file(name) else name


@functools.cache
def default(group: str) -> Any:
    """The preset of `group` that applies when no override names one."""
    defaults = read_yaml(CONF / "config.yaml")["defaults"]
    return next(entry[group] for entry in defaults if isinstance(entry, dict) and group in entry)


def options(kind: type) -> set[str]:
    """The options of a method, a sampler or a task."""
    return {field.name for field in dataclasses.fields(kind)}


VARIABLES = "task.chat_variables"
"""The setting whose value is a mapping with names that the user chooses."""


@functools.cache
def keys() -> list[str]:
    """Every setting that an override may name, including the options of all methods and tasks."""
    of_classes = {
        f"{group}.{option}"
        for group, registry in CLASSES.items()
        for kind in registry().values()
        for option in options(kind)
    }
    return sorted(of_classes | flat(defaults()).keys())


def lists() -> set[str]:
    """Every setting whose value is a list."""
    of_classes = {
        f"{group}.{field.name}"
        for group, registry in CLASSES.items()
        for kind in registry().values()
        for field in dataclasses.fields(kind)
        if str(field.type).startswith("tuple")
    }
    return of_classes | {key for key, value in flat(defaults()).items() if isinstance(value, list | tuple)}


def defaults() -> dict[str, Any]:
    """All defaults of the schema, without method, sampler and task."""
    fields = dataclasses.fields(RunSpec)
    return {field.name: plain(field.default) for field in fields if field.name not in (*CLASSES, "plugins")}


def check(key: str, values: Sequence[str]) -> None:
    """Raise ConfigError if `key` is neither a group nor a setting, or its group has no such name."""
    if key in (group_names := groups()):
        for value in values:
            if value not in group_names[key] and (key in CLASSES or not is_file(value)):
                raise _unknown_name(key, value, group_names[key])
    elif key in CHOSEN:
        group = key.removesuffix(".name")
        raise ConfigError(f"'{key}' is not a setting: use {group}=NAME", fix=f"{group}={','.join(values)}")
    elif key not in keys():
        raise unknown_key(key, lambda name: f"{name}={','.join(values)}")


def _unknown_name(group: str, name: str, names: Sequence[str]) -> ConfigError:
    """The error of a value that is no name of its group: a model's folder, a class of a plug-in, or a slip."""
    error = partial(ConfigError, code="unknown_name")
    if group == "model" and "/" in name:
        return error(
            f"unknown model '{name}': model= is for presets, model.path= for folders and the Hugging Face Hub",
            fix=f"model.path={name}",
        )
    if group == "model" and Path(name).is_dir():
        return error(f"unknown model '{name}': a folder is written with a /", fix=f"model=./{name}")
    if group in CLASSES and (path := _undeclared(group, name)):
        return error(
            f"unknown {group} '{name}': {path} declares it, and MCPO_PLUGINS does not name its folder",
            fix=f"MCPO_PLUGINS={path.parent} mcpo ...",
        )
    fix = mend(group + "={}", name, names, _elsewhere(group, name))
    return error(f"unknown {group} '{name}': {nearest(name, names)}", fix=fix)


def _undeclared(group: str, name: str) -> Path | None:
    """A Python file here, or in a folder here, that seems to declare a method, sampler or task of that name.

    It is read as text and not run; the folders of MCPO_PLUGINS are left out, because their files are already known.
    """
    pattern = re.compile(rf"^    name\b.*= *[\"']{re.escape(name)}[\"']", re.MULTILINE)
    folders = {folder.resolve() for folder in plugins.folders()}
    for path in sorted(islice(chain(Path().glob("*.py"), Path().glob("*/*.py")), MOST_FILES)):
        with suppress(OSError):
            text = path.read_text(encoding="utf-8", errors="replace") if path.resolve().parent not in folders else ""
            if f"mcpo_cli.{group}s" in text and pattern.search(text):
                return path
    return None


def _elsewhere(group: str, name: str) -> str | None:
    """The fix for a name unlike all names in this group: the name's own group, or the command that lists this group."""
    if group == "task" and name in datasets.registry():
        return f"task=math task.data={name}"
    return {
        "method": "mcpo components list method",
        "model": "mcpo components list model",
        "task": "mcpo help task",
    }.get(group)


def unknown_key(key: str, mend: Callable[[str], str]) -> ConfigError:
    """The error of a key that does not exist; `mend` makes the fix of the key that was probably meant."""
    all_keys = [*keys(), *groups()]
    group_key, _, name = key.rpartition(".")
    if group_key == VARIABLES:
        fix = f"'{short(group_key)}={{{name}: VALUE}}'"
        return ConfigError(f"{short(group_key)} is one value, with all variables in it", fix=fix, code="unknown_key")
    guesses = _meant(key, all_keys)
    hint = f": did you mean {' or '.join(repr(name) for name in guesses)}?" if guesses else ""
    group = key.partition(".")[0]
    help_command = f"mcpo help {group}" if any(name.startswith(f"{group}.") for name in all_keys) else "mcpo help"
    fix = short(mend(guesses[0])) if guesses else f"{help_command}  (lists the settings)"
    return ConfigError(f"unknown key '{short(key)}'{hint}", fix=fix, code="unknown_key")


def _meant(key: str, all_keys: Sequence[str]) -> list[str]:
    """The keys that an unknown key may mean: its name in another group, or a similar spelling.

    `warmup.max_ops` may mean `task.warmup_max_ops`. In a group that exists, only the names in it are compared: the
    letters of the group would make all of them look similar.
    """
    group, _, key_name = key.rpartition(".")
    siblings = {name.removeprefix(f"{group}."): name for name in all_keys if group and name.startswith(f"{group}.")}
    return (
        [name for name in all_keys if name.rpartition(".")[2] == key.replace(".", "_")]
        or [siblings[name] for name in difflib.get_close_matches(key_name, siblings, n=1, cutoff=SIMILAR)]
        or [name for name in all_keys if name.rpartition(".")[2] == key_name]
        or ([] if siblings else difflib.get_close_matches(key, all_keys, n=1, cutoff=SIMILAR))
    )
