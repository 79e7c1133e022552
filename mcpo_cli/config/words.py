"""Words of a command, and files of settings, as overrides in Hydra's grammar."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcpo_cli.config import presets
from mcpo_cli.config.reading import key_of, quoted
from mcpo_cli.data import files
from mcpo_cli.data.base import HELD_OUT
from mcpo_cli.errors import ConfigError
from mcpo_cli.settings import flat

SHORT = {"reward": "train.reward", "data": "task.data"}
"""Settings by their short words."""


def spelled_out(overrides: Sequence[str]) -> list[str]:
    """`overrides` with the settings that `reward=`, `data=` and `model=FOLDER` abbreviate in their place.

    `model=./my-model` and `model=OWNER/NAME` are short for `model.path=`. `data=` chooses task=math; one in eight
    problems of a file is held out, unless `task.benchmarks` names benchmarks.
    """
    override_keys, words = set(map(key_of, overrides)), list[str]()
    for text in overrides:
        key, _, value = text.partition("=")
        if key == "data" and "task" not in override_keys:
            words.append("task=math")
        if key == "data" and "task.benchmarks" not in override_keys and any(map(files.is_name, value.split(","))):
            words.append(f"task.benchmarks=[{HELD_OUT}]")
        is_path = key == "model" and all("/" in name and not presets.is_file(name) for name in value.split(","))
        words.append(f"{'model.path' if is_path else SHORT.get(key, key)}={value}" if is_path or key in SHORT else text)
    return words


def as_overrides(content: Mapping[str, Any]) -> list[str]:
    """The content of a YAML file of settings as overrides; a list is a sweep, unless the setting is a list itself.

    Raises:
        ConfigError: a value contains itself.
    """
    lists = presets.lists()
    try:
        return [
            sweep(
                key.removesuffix(".name") if key in presets.CHOSEN else key,
                value if isinstance(value, list) and key not in lists else [value],
            )
            for key, value in flat(content, whole=presets.VARIABLES).items()
        ]
    except RecursionError:
        raise ConfigError("a value contains itself, by a YAML alias", fix="write it out") from None


def sweep(key: str, values: Sequence[Any]) -> str:
    """The override that sets `key` to each of `values`, which YAML has read."""
    return f"{key}={','.join(map(_text, values))}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        texts = (f"{key}: {quoted(item) if isinstance(item, str) else _text(item)}" for key, item in value.items())
        return f"{{{', '.join(texts)}}}"
    return "null" if value is None else str(value)
