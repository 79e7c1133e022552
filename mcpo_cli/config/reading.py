"""Reads YAML files of settings, and single overrides in Hydra's grammar; it does not interpret keys."""

import functools
import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from mcpo_cli.errors import ConfigError, first_line, similar
from mcpo_cli.redaction import redact

MAX_VALUES = 1000
"""Largest number of runs of one sweep; more are taken for a typing error."""
TYPED = "write key=value, for example method=mcpo seed=0,1,2"
"""The fix for words that are no settings."""
SPACED = re.compile(r"([\w.]+)\s*[=:]\s*([\w.,+-]+)")
"""A setting with spaces around its sign, or with the colon of YAML."""
KEY = re.compile(r"\w+([.]\w+)+")
"""The key of a setting in a group."""
MAX_BYTES = 1 << 20
"""Largest size of a file of settings in bytes: YAML is read at a few hundred kB per second."""
MAX_SHOWN = 200
"""Largest number of characters of an override that a message repeats."""


class _Loader(yaml.SafeLoader):
    """Refuses values that YAML reads differently from people.

    `010` would be 8 and `1:30` 90 (YAML 1.1); if two keys are equal, such as two arms, the last would silently win.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = Counter(str(key.value) for key, _ in node.value)
        if duplicates := [name for name, count in names.items() if count > 1]:
            raise ValueError(f"{duplicates[0]} is given twice")
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if re.match(r"[-+]?0[0-9_]|.*:", node.value):
            digits = node.value.lstrip("+-0_") or "0"
            raise ValueError(f"{node.value} would be {super().construct_yaml_int(node)}: write {digits}, or quote it")
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, safe-loaded.

    Raises:
        ConfigError: the file cannot be read or is not a YAML mapping with text keys.
    """
    try:
        # Reading a pipe would block.
        if path.stat().st_size > MAX_BYTES or not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path} is no file of at most {MAX_BYTES >> 20} MiB", fix=f"ls -l {path}")
        data = yaml.load(path.read_text(encoding="utf-8"), _Loader) or {}
    except ConfigError:
        raise
    except OSError as error:
        neighbours = {neighbour.stem: neighbour for neighbour in path.parent.glob("*.y*ml")}
        guess = similar(path.stem, neighbours)
        fix = str(neighbours[guess]) if guess else f"ls {path.parent}"
        raise ConfigError(f"{path} cannot be read: {error.strerror}", fix=fix) from error
    except yaml.constructor.ConstructorError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        message = f"{path}{place}: only plain values are read: {error.problem or error.context}"
        raise ConfigError(message, fix="write names, numbers, texts and lists, without a tag (!...)") from error
    except Exception as error:  # PyYAML raises many kinds for a value that does not fit its tag
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        message = f"{path}: must be a mapping of names to values, not {type(data).__name__}"
        raise ConfigError(message, fix="write NAME: VALUE, one per line")
    if bad_keys := [key for key in data if not isinstance(key, str)]:
        raise ConfigError(f"{path}: the key {bad_keys[0]!r} is not text; quote it if it is meant as a name")
    return data


def key_of(override: str) -> str:
    """The key that one override sets."""
    return override.partition("=")[0].lstrip("+~")


def without_seeds(overrides: Sequence[str]) -> list[str]:
    """The overrides that do not set `seed`, for commands that choose the seeds."""
    return [word for word in overrides if key_of(word) != "seed"]


def parse(text: str) -> tuple[str, list[str]]:
    """Key and values of one override; a sweep has several values."""
    with reading(text):
        override = read(text)
        if override.is_sweep_override():
            values = list(itertools.islice(override.sweep_string_iterator(), MAX_VALUES + 1))
            if not values:
                raise ValueError("the sweep is empty")
            if any(r"\ " in value and value[0] not in "'\"" for value in values):
                raise ConfigError(
                    f"'{short(text)}': the commas would separate the values of a sweep",
                    fix=f"as one text: {in_quotes(text)}; as a sweep: each value in quotes",
                )
            return override.key_or_group, values
        return override.key_or_group, [text.partition("=")[2].strip()]


def read(text: str) -> Any:
    """One override that sets a key, parsed by Hydra."""
    refuse_secrets(text)
    with reading(text):
        override = _parsed(text)
    if override.is_delete() or override.is_add() or override.is_force_add() or override.package is not None:
        key = override.key_or_group
        fix = f"leave it out, or {key}=VALUE" if override.is_delete() else f"{key}=VALUE"
        raise ConfigError(f"'{short(text)}': settings can be changed, not added, moved or removed", fix=fix)
    return override


@functools.lru_cache(maxsize=10_000)
def _parsed(text: str) -> Any:
    """One override as Hydra parses it; a value that its grammar has no place for is text, as if it were in quotes.

    Cached, because the runs of a suite share most overrides.
    """
    from hydra.errors import HydraException

    try:
        return _parser().parse_override(text)
    except HydraException:
        if "=" not in text or _open(text):
            raise
        return _parser().parse_override(f"{key_of(text)}={quoted(text.partition('=')[2])}")


def _open(text: str) -> bool:
    """True if a bracket is not closed, as where a list was meant."""
    open_count, close_count = (sum(map(text.count, signs)) for signs in ("[{(", "]})"))
    return open_count > close_count


def quoted(value: str) -> str:
    """`value` as a text in Hydra's grammar, in which a backslash escapes quotes, and backslashes before them."""
    body = re.sub(r'(\\*)"', r'\1\1\\"', value)
    backslashes = len(body) - len(body.rstrip("\\"))
    return f'"{body}{chr(92) * backslashes}"'


def in_quotes(text: str) -> str:
    """The override `text` as one word of a shell, with its value as text."""
    return shlex.quote(f"{key_of(text)}={quoted(text.partition('=')[2])}")


@functools.cache
def _parser() -> Any:
    """Hydra's parser, made once, because each new one inspects the functions of its grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


def refuse_secrets(setting: str) -> None:
    """Refuses passwords and tokens, because settings are stored with every run and all users can read command lines."""
    if (text := redact(setting)) != setting:
        raise ConfigError(
            f"'{short(text)}': a password or a token cannot be a setting, because settings are stored with the run",
            fix="the environment: HF_TOKEN, MLFLOW_TRACKING_URI, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
            code="credential",
        )


@contextmanager
def reading(text: str) -> Iterator[None]:
    from hydra.errors import HydraException

    try:
        yield
    except (HydraException, ValueError, NotImplementedError, RecursionError) as error:
        if "=" not in text:
            reason = "it has no ="
            fix = f"data={text} (mcpo evaluate: --benchmarks NAME={text})" if Path(text).is_file() else TYPED
            if KEY.fullmatch(text):
                fix = f"{text}=VALUE  (without spaces around =)"
        else:
            reason = "a bracket is not closed" if _open(text) else short(first_line(error))
            fix = f"close the bracket, or as text: {in_quotes(text)}" if _open(text) else f"as text: {in_quotes(text)}"
        if match := SPACED.fullmatch(text):
            reason, fix = "a setting is written key=value, without spaces", "=".join(match.groups())
        raise ConfigError(f"cannot read the override '{short(text)}': {reason}", fix=fix) from error


def short(text: str) -> str:
    """The text, or its beginning."""
    return f"{text[:MAX_SHOWN]}..." if len(text) > MAX_SHOWN else text
