"""Hydra composes; this module checks, suggests, and hands out frozen dataclasses. No DictConfig leaves it."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from mcpo_cli import methods
from mcpo_cli.config.convert import convert
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, nearest

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
LATER_SCALES = {"paper": "it comes with the verl backend, which this version does not have yet"}


def load(overrides: Sequence[str]) -> list[RunSpec]:
    """The runs that `overrides` (Hydra's grammar, sweeps included) ask for, in sweep order.

    Raises:
        ConfigError: anything a user can get wrong, before anything starts.
    """
    with _hydra() as compose:
        return [_load_one(compose, combination) for combination in _expand(overrides)]


def from_dict(data: Mapping[str, Any]) -> RunSpec:
    """Inverse of `RunSpec.to_dict`."""
    data = dict(data)
    options = dict(data.pop("method"))
    method = methods.get(options.pop("name"), **options)
    return validate(convert(RunSpec, data, "", method=method))


def groups() -> dict[str, list[str]]:
    """The named presets of each group: what may stand right of `method=`, `model=`, `regime=`, `scale=`."""
    found = {"method": sorted(methods.registry())}
    for folder in sorted((EXPERIMENTS / "conf").iterdir()):
        if folder.is_dir():
            found[folder.name] = sorted(path.stem for path in folder.glob("*.yaml"))
    return found


@functools.cache
def keys() -> list[str]:
    """Every setting that an override may name, methods' options included."""
    options = {f"method.{field.name}" for method in methods.registry().values() for field in dataclasses.fields(method)}
    return sorted(options | set(_flatten(_base_node())))


def override_key(override: str) -> str:
    """The key that one override sets."""
    return override.partition("=")[0].lstrip("+~")


def validate(spec: RunSpec) -> RunSpec:
    """`spec`, once its settings do not contradict each other.

    Raises:
        ConfigError: naming the contradiction and the nearest valid value.
    """
    train, task = spec.train, spec.task
    if train.mini_batch > train.prompts:
        raise ConfigError(
            f"train.mini_batch={train.mini_batch} is larger than train.prompts={train.prompts}; "
            f"nearest valid: train.mini_batch={train.prompts}"
        )
    if train.prompts % train.mini_batch:
        fits = max(n for n in range(1, train.mini_batch + 1) if train.prompts % n == 0)
        raise ConfigError(
            f"train.mini_batch={train.mini_batch} does not divide train.prompts={train.prompts}; "
            f"nearest valid: train.mini_batch={fits}"
        )
    if train.overlong_cache >= train.max_response:
        raise ConfigError(
            f"train.overlong_cache={train.overlong_cache} must be below train.max_response={train.max_response}; "
            f"nearest valid: train.overlong_cache={train.max_response - 1}"
        )
    if task.min_ops > task.max_ops:
        raise ConfigError(f"task.min_ops={task.min_ops} is larger than task.max_ops={task.max_ops}; nearest valid: {task.max_ops}")
    if train.max_response < 2 * task.max_ops:
        raise ConfigError(
            f"train.max_response={train.max_response} cannot hold the {2 * task.max_ops} tokens of an answer with "
            f"task.max_ops={task.max_ops}; nearest valid: train.max_response={2 * task.max_ops}"
        )
    if 0 < task.pool < train.prompts:
        raise ConfigError(
            f"task.pool={task.pool} holds fewer prompts than one batch (train.prompts={train.prompts}); "
            f"nearest valid: task.pool={train.prompts}, or 0 for fresh prompts"
        )
    if not all(0 <= beta < 1 for beta in train.betas):
        raise ConfigError(f"train.betas={list(train.betas)}: both must be in [0, 1)")
    if (spec.model.hidden % 2, spec.model.head_dim % 2) != (0, 0):
        raise ConfigError("model.hidden and model.head_dim must be even (rotary embedding)")
    return spec


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping, safe-loaded."""
    with path.open(encoding="utf-8") as file:
        data = yaml.safe_load(file)
    return dict(data or {})


def _base_node() -> dict[str, Any]:
    """All defaults of the schema but the method's, as Hydra's lowest layer."""
    plain = {}
    for field in dataclasses.fields(RunSpec):
        if field.name != "method":
            value = field.default
            is_group = dataclasses.is_dataclass(value) and not isinstance(value, type)
            plain[field.name] = dataclasses.asdict(value) if is_group else value
    return plain


def _flatten(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@contextmanager
def _hydra() -> Iterator[Any]:
    """Hydra's compose function, with the schema's defaults and the registered methods as config nodes."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra

    store = ConfigStore.instance()
    store.store(name="schema", node=_base_node())
    for name, method in methods.registry().items():
        store.store(group="method", name=name, node={"name": name, **dataclasses.asdict(method())})
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(EXPERIMENTS / "conf"), version_base="1.3"):
        yield compose


def _expand(overrides: Sequence[str]) -> Iterator[list[str]]:
    """Every combination of a sweep as a list of plain overrides, the last key varying fastest."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    axes: list[list[str]] = []
    for text in overrides:
        try:
            override = OverridesParser.create().parse_override(text)
            is_sweep = override.is_sweep_override()
            values = list(override.sweep_string_iterator()) if is_sweep else [override.get_value_element_as_str()]
        except (HydraException, ValueError) as error:
            hint = "write key=value, for example method=mcpo seed=0,1,2"
            raise ConfigError(f"cannot read the override '{text}': {str(error).splitlines()[0]}", fix=hint) from error
        key = override.key_or_group
        if override.is_delete() or override.is_add() or override.is_force_add():
            raise ConfigError(f"'{text}': settings can be changed, not added or removed", fix=f"{key}=VALUE")
        _check_key(key, values)
        axes.append([f"{key}={value}" for value in values])
    return (list(combination) for combination in itertools.product(*axes))


def _check_key(key: str, values: Sequence[str]) -> None:
    options = groups()
    if key in options:
        for value in values:
            if key == "scale" and value in LATER_SCALES:
                raise ConfigError(f"scale={value}: {LATER_SCALES[value]}; available: {', '.join(options[key])}")
            if value not in options[key]:
                raise ConfigError(f"unknown {key} '{value}': {nearest(value, options[key])}", fix=f"{key}={options[key][0]}")
    elif key not in keys():
        raise ConfigError(f"unknown key '{key}': {nearest(key, [*keys(), *options])}", fix="mcpo train --help lists the settings")


def _load_one(compose: Any, overrides: list[str]) -> RunSpec:
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _check_method_options(overrides)
    try:
        data = OmegaConf.to_container(compose("config", overrides=overrides), resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"cannot compose {' '.join(overrides)}: {str(error).splitlines()[0]}") from error
    assert isinstance(data, dict)
    return from_dict({str(key): value for key, value in data.items()})


def _check_method_options(overrides: Sequence[str]) -> None:
    chosen = dict(override.split("=", 1) for override in overrides)
    name = chosen.get("method", str(read_default("method")))
    options = [f"method.{field.name}" for field in dataclasses.fields(methods.registry()[name])]
    for key in chosen:
        if key.startswith("method.") and key not in options:
            raise ConfigError(f"{key} is not an option of method={name}: {nearest(key, options)}")


def read_default(group: str) -> Any:
    """The preset of `group` that is taken when no override names one."""
    defaults = read_yaml(EXPERIMENTS / "conf" / "config.yaml")["defaults"]
    return next(entry[group] for entry in defaults if isinstance(entry, dict) and group in entry)

