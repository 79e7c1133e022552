"""Reads YAML files of settings: suites, presets, claims. Whoever wrote them, reading ends soon and runs no code."""

import itertools
import math
from pathlib import Path
from typing import Any

import yaml

from mcpo_cli.errors import ConfigError

MAX_BYTES, MAX_VALUES = 1 << 20, 10_000
"""The most bytes of a file, and values in it where each of its aliases stands for what it repeats."""


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, safe-loaded.

    Raises:
        ConfigError: the file cannot be read or is not a YAML mapping with text keys.
    """
    try:
        # Something else, such as a pipe, may never end.
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{path} has more than {MAX_BYTES} bytes")
        data = _parsed(content.decode()) or {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", fix=f"ls {path.parent}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must be a mapping of names to values, not {type(data).__name__}")
    if wrong := [key for key in data if not isinstance(key, str)]:
        raise ConfigError(f"{path}: the key {wrong[0]!r} is not text; quote it if it is meant as a name")
    return data


def _parsed(text: str) -> Any:
    """The data in YAML text, safe-loaded. Raises ValueError if it is none, or too large once aliases are resolved."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if _values(node, {}) > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values, or one that contains itself")
        return loader.construct_document(node) if node else None
    except Exception as error:  # PyYAML raises many kinds for a value that is not what its tag says
        raise ValueError(" ".join(str(error).split())) from error


def _values(node: Any, counted: dict[int, float]) -> float:
    """Number of values at and below a YAML node, an alias counted as what it repeats; inf if a node contains itself."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in counted:
        counted[id(node)] = math.inf
        parts = itertools.chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
        counted[id(node)] = 1 + sum(_values(part, counted) for part in parts)
    return counted[id(node)]
