"""Options of one class, such as the chosen method, sampler or task: defaults, what presets and overrides change."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mcpo_cli import prompt_samplers
from mcpo_cli.config import presets
from mcpo_cli.config.reading import key_of, read
from mcpo_cli.convert import SWITCH, convert
from mcpo_cli.errors import ConfigError

T = TypeVar("T")


def given(group: str, overrides: Sequence[str]) -> str:
    """The preset of `group` that `overrides` name; empty if they name none."""
    return next((text.partition("=")[2] for text in overrides if key_of(text) == group), "")


def with_options(composed: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """`composed` with all options of the chosen method, sampler and task; values of presets replace their defaults."""
    for group, registry in presets.CLASSES.items():
        name = given(group, overrides) or composed[group]["name"]
        composed[group] = dataclasses.asdict(registry()[name]()) | composed[group] | {"name": name}
    # A preset may hold settings for each task; only the chosen task's settings apply.
    composed["task"] |= composed.pop("tasks", {}).get(composed["task"]["name"], {})
    return composed


def check_sweep(axes: Mapping[str, Sequence[str]]) -> None:
    """Refuse an option that some methods, samplers or tasks of a sweep do not have. axes: the values of each key.

    Raises:
        ConfigError: it says that arms of a suite may have different options.
    """
    for group, registry in presets.CLASSES.items():
        names, classes = axes.get(group, ()), registry()
        for key in axes if len(names) > 1 else ():
            option = key.removeprefix(f"{group}.")
            without = [name for name in names if option != key and option not in presets.options(classes[name])]
            if without and len(without) < len(names):
                option_texts = {name: "" if name in without else f", {key}={axes[key][0]}" for name in names}
                arms = (f"{name}: [{group}={name}{option_text}]" for name, option_text in option_texts.items())
                raise ConfigError(
                    f"{key} is not an option of {', '.join(without)}: a sweep sets it for all, arms of a suite differ",
                    fix=f"a file mine.yaml with arms: {{{', '.join(arms)}}}, then mcpo train mine.yaml",
                    code="contradiction",
                )


def check_options(overrides: Sequence[str], composed: Mapping[str, Any]) -> None:
    """Raises ConfigError for an option that the chosen class does not have, but another class has."""
    for key in map(key_of, overrides):
        group, _, option = key.partition(".")
        if group in presets.CLASSES and option:
            name = composed[group]["name"]
            owners = [owner for owner, kind in presets.CLASSES[group]().items() if option in presets.options(kind)]
            if name not in owners:
                alternative = f"{group}={owners[0]}" if len(owners) == 1 else f"another {group}"
                raise ConfigError(
                    f"{key} is an option of {', '.join(owners)}, not of {name}",
                    fix=f"leave out {key}, or choose {alternative}",
                    code="contradiction",
                )


def agree(data: dict[str, Any], overrides: Sequence[str], default: str) -> None:
    """Set `method.dynamic_sampling` to what the chosen sampler does, if any (a preset cannot choose `uniform`).

    Raises:
        ConfigError: the overrides set the option to another value.
    """
    option, name = "method.dynamic_sampling", data["sampler"]["name"]
    if not given("sampler", overrides) and name == default:
        return
    filters, sampling_option = bool(prompt_samplers.registry()[name].filters), data["method"]["dynamic_sampling"]
    if option not in map(key_of, overrides):
        data["method"]["dynamic_sampling"] = filters
    elif SWITCH.get(str(sampling_option).lower(), sampling_option) is (not filters):
        behaviour = "throws groups away and samples others" if filters else "throws no group away"
        raise ConfigError(
            f"sampler={name} {behaviour}; {option}={str(sampling_option).lower()} says otherwise",
            fix=f"{option}={str(filters).lower()}, or leave it out",
            code="contradiction",
        )


def settings(cls: type[T], overrides: Sequence[str], group: str = "") -> T:
    """The dataclass `cls` with its defaults changed by `overrides` (Hydra's grammar without sweeps and presets).

    Args:
        group: the group of these settings, which messages name; the overrides may name it, too.

    Raises:
        ConfigError: any mistake in the overrides.
    """
    data: dict[str, Any] = {}
    for text in overrides:
        override = read(text)
        *path, name = override.key_or_group.removeprefix(f"{group}.").split(".")
        if override.is_sweep_override():
            raise ConfigError(f"'{text}': takes one value, not a sweep", fix=f"{override.key_or_group}=VALUE")
        group_data = data
        for part in path:
            group_data = group_data.setdefault(part, {})
            if not isinstance(group_data, dict):
                raise ConfigError(f"'{text}': {part} already has a value")
        if name in group_data:
            raise ConfigError(f"{override.key_or_group} is given twice", fix=f"{override.key_or_group}=VALUE")
        group_data[name] = override.value()
    return convert(cls, data, group)
