"""Turns overrides into checked, frozen dataclasses. Hydra composes the presets; no DictConfig leaves this module."""

import copy
import dataclasses
import functools
import itertools
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from mcpo_cli import methods, prompt_samplers, tasks
from mcpo_cli.config import class_options, contradictions, model_settings, presets
from mcpo_cli.config.class_options import given
from mcpo_cli.config.reading import MAX_VALUES, TYPED, key_of, parse, read, read_yaml, refuse_secrets, short
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.config.used_plugins import used_plugins
from mcpo_cli.convert import DEFAULT, convert
from mcpo_cli.errors import ConfigError, first_line
from mcpo_cli.redaction import redact
from mcpo_cli.settings import flat, plain

ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\b")
"""A reference to the environment, in OmegaConf's grammar."""
OF_EXISTING = {"local": "laptop", "verl": "one-gpu"}
"""The scale of an existing model by its backend, if no scale is chosen."""


def load(overrides: Sequence[str]) -> list[RunSpec]:
    """The runs that `overrides` (Hydra's grammar, sweeps included) ask for, in sweep order.

    Raises:
        ConfigError: any mistake in the overrides.
    """
    return load_all([overrides])[0]


def load_all(lists: Iterable[Sequence[str]]) -> list[list[RunSpec]]:
    """The runs that each of several lists of overrides asks for, see `load`; a model's folder is read once for all."""
    read_model = functools.cache(model_settings.of_files)
    spec_lists = [[_load_one(combination, read_model) for combination in expand(overrides)] for overrides in lists]
    return [[dataclasses.replace(spec, plugins=used_plugins(spec)) for spec in specs] for specs in spec_lists]


def from_dict(data: Mapping[str, Any]) -> RunSpec:
    """The inverse of `RunSpec.to_dict`."""
    data = dict(data)
    if "cluster" in data:
        # Older records have a second name for train.correction=token-truncate here. A null means no correction.
        old_item = ("rollout_correction", None)
        data["cluster"] = dict(item for item in data["cluster"].items() if item != old_item)
    method, task = dict(data.pop("method")), dict(data.pop("task"))
    # Without a sampler, `RunSpec` takes the one that follows from the method's option.
    sampler = dict(data.pop("sampler", {"name": prompt_samplers.Uniform.name}))
    return validate(
        convert(
            RunSpec,
            data,
            "",
            method=methods.get(str(method.pop("name", "")), **method),
            task=tasks.get(str(task.pop("name", "")), **task),
            sampler=prompt_samplers.get(str(sampler.pop("name", "")), **sampler),
        )
    )


def validate(spec: RunSpec) -> RunSpec:
    """Returns `spec` if none of its settings contradict each other.

    Raises:
        ConfigError: it names the contradiction and the nearest valid value.
    """
    for message, fix in contradictions.of(spec):
        raise ConfigError(message, fix=fix, code="contradiction")
    return spec


@functools.cache
def _register() -> None:
    """Give Hydra the schema's defaults and the names of methods, samplers and tasks, as config nodes."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="schema", node=presets.defaults())
    for group, registry in presets.CLASSES.items():
        for name in registry():
            store.store(group=group, name=name, node={"name": name})


def expand(overrides: Sequence[str]) -> Iterator[list[str]]:
    """Every combination of a sweep as a list of plain overrides, the last key varying fastest.

    Raises:
        ConfigError: an override is no setting, is given twice, or has no value of that name.
    """
    axes: dict[str, list[str]] = {}
    for text in overrides:
        key, values = parse(text)
        if key in axes:
            raise ConfigError(f"{key} is given twice", fix=f"{key}={','.join([*axes[key], *values])}  (a sweep)")
        presets.check(key, values)
        axes[key] = values
        if (runs := math.prod(map(len, axes.values()))) > MAX_VALUES:
            message = f"'{short(text)}' asks for {runs} runs or more; at most {MAX_VALUES} at once"
            raise ConfigError(message, fix=f"{key}={','.join(values[:2])}  (fewer values)")
    class_options.check_sweep(axes)
    override_lists = [[f"{key}={value}" for value in values] for key, values in axes.items()]
    return (list(combination) for combination in itertools.product(*override_lists))


def _load_one(overrides: list[str], read_model: model_settings.Reader) -> RunSpec:
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

    try:
        # Presets first, then single settings, as in Hydra. The runs of a sweep share the slow first part.
        data: Any = class_options.with_options(copy.deepcopy(_presets(overrides)), overrides)
        apply_settings(data, overrides)
        if ENVIRONMENT.search(text := str(data)):
            raise ConfigError(
                "${oc.env:...} reads the environment: the same settings would mean other runs elsewhere", fix=TYPED
            )
        if "${" in text:
            # So a preset can share few base policies among all seeds: `base_seed: ${remainder:${seed},3}`.
            OmegaConf.register_new_resolver("remainder", _remainder, replace=True)
            data = OmegaConf.to_container(OmegaConf.create(data), resolve=True)
    except InterpolationResolutionError as error:
        fix = r"\${NAME} in place of ${NAME} for a text; the shell replaces $NAME in double quotes"
        raise ConfigError(f"{short(' '.join(overrides))}: {first_line(error)}", fix=fix) from error
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, OSError) as error:
        raise ConfigError(f"cannot compose {short(' '.join(overrides))}: {first_line(error)}", fix=TYPED) from error
    settings = {str(key): value for key, value in data.items()}
    # Checked again, because a preset may hold a secret.
    lines = [f"{key}={value}" for key, value in flat(settings).items()]
    if redact("\n".join(lines)) != "\n".join(lines):
        for line in lines:
            refuse_secrets(line)
    settings["model"] = model_settings.completed(settings["model"], _given_for_model(overrides), read_model)
    try:
        return from_dict(settings)
    except ConfigError as error:
        raise ConfigError(error.message, fix=_of_presets(error.fix, overrides), code=error.code) from error


def _of_presets(fix: str | None, overrides: Sequence[str]) -> str | None:
    """`fix`; if it sets a setting to its default, with the value of the chosen presets instead."""
    key, is_default = (fix or "").partition("=")[0], (fix or "").endswith(DEFAULT)
    value, preset_text = flat(_presets(overrides)).get(key) if is_default else None, " ".join(_chosen(overrides))
    if value is None or not preset_text or fix == f"{key}={value}{DEFAULT}":
        return fix
    return f"{key}={value}  (the value of {preset_text})"


def _remainder(number: Any, divisor: int) -> int:
    """`number` modulo `divisor`; 0 if it is not an integer, which the check of its own setting refuses."""
    return number % divisor if isinstance(number, int) else 0


def apply_settings(data: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set the single settings of `overrides` in `data`, which has all options of the chosen classes."""
    class_options.check_options(overrides, data)
    for text in overrides:
        if (key := key_of(text)) not in presets.groups():
            *path, name = key.split(".")
            group_settings = functools.reduce(operator.getitem, path, data)
            old_value = group_settings.get(name)
            # A preset's reference, such as `base_seed: ${remainder:${seed},3}`, may stand for a number.
            group_settings[name] = _value(text, isinstance(old_value, str) and "${" not in old_value)
    class_options.agree(data, overrides, str(presets.default("sampler")))


def preset_model(name: str) -> Model:
    """The model of a preset, or of a YAML file at that path.

    Raises:
        ConfigError: there is no such preset, or it has a mistake.
    """
    presets.check("model", [name])
    return convert(Model, _composed((f"model={name}",))["model"], "model")


def _given_for_model(overrides: Sequence[str]) -> set[str]:
    """The settings of `model` that the overrides set, and the preset's if that is itself an existing model."""
    settings = {key.removeprefix("model.") for key in map(key_of, overrides) if key.startswith("model.")}
    preset = _presets(overrides)["model"]
    defaults = plain(RunSpec.model)
    return settings | ({name for name, value in preset.items() if value != defaults[name]} if preset["path"] else set())


def _presets(overrides: Sequence[str]) -> dict[str, Any]:
    """The settings of the presets that `overrides` choose.

    Without `model=`, the model at `model.path` takes the place of the model that a scale chooses.
    """
    data = _composed(_chosen(overrides))
    if given("model", overrides) or not given("model.path", overrides):
        return data
    return data | {"model": presets.defaults()["model"]}


def _chosen(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides that choose a preset, and the scale of an existing model if no scale is chosen."""
    preset_words = tuple(
        text for text in overrides if key_of(text) in presets.groups() and key_of(text) not in presets.CLASSES
    )
    if given("scale", overrides):
        return preset_words
    backend, scale = given("backend", overrides), None
    if model := given("model", overrides):
        scale = read_yaml(presets.file("model", model)).get("scale")
        # A preset names the scale of one backend; the other one has its own.
        if scale and backend and (scale == OF_EXISTING["local"]) != (backend == "local"):
            scale = OF_EXISTING.get(backend)
    elif given("model.path", overrides):
        scale = OF_EXISTING.get(backend or "local")
    return (*preset_words, f"scale={scale}") if scale else preset_words


@functools.cache
def _composed(preset_words: tuple[str, ...]) -> dict[str, Any]:
    """The settings that Hydra composes from these presets (`scale=toy`), as plain data.

    Method and task have the name of the default and the options that a preset sets, whichever class is chosen.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    _register()
    hydra_overrides = [_stored(*preset.split("=", 1)) for preset in preset_words]
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(presets.CONF), version_base="1.3"):
            data = OmegaConf.to_container(compose("config", overrides=hydra_overrides))
    except Exception as error:  # Hydra and OmegaConf raise many kinds for a broken preset
        raise ConfigError(f"cannot compose {' '.join(preset_words)}: {first_line(error)}") from error
    assert isinstance(data, dict)
    # `_chosen` has already read it.
    data["model"].pop("scale", None)
    return {str(key): value for key, value in data.items()}


def _stored(group: str, name: str) -> str:
    """The override that makes Hydra load the preset `name`, which may come from a plug-in or be a file."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    path = presets.file(group, name)
    read_yaml(path)
    if path.parent.parent == presets.CONF:
        return f"{group}={name}"
    package = re.search(r"^#\s*@package\s+(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    # OmegaConf reads 1e-5 as a number, like Hydra; plain YAML reads it as text.
    node = OmegaConf.load(path)
    ConfigStore.instance().store(name="given", node=node, group=group, package=package[1] if package else None)
    return f"{group}=given"


@functools.cache
def _value(text: str, as_text: bool) -> Any:
    """The value that one override sets; as_text: a number, such as the commit 12345e7, is taken as it was written."""
    value = read(text).value()
    return text.partition("=")[2].strip() if as_text and isinstance(value, bool | int | float) else value


CHOOSE_SCALE = ("scale", "model", "backend")
"""The groups whose presets choose the scale."""


def chosen(group: str, overrides: Sequence[str]) -> str:
    """The preset of `group` that `overrides`, without a sweep, or an existing model choose, or else the default."""
    return presets.stem(given(group, _chosen(overrides)) or str(presets.default(group)))
