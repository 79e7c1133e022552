"""Reads single overrides, in Hydra's grammar; what their keys mean is none of this module's business."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcpo_cli.errors import ConfigError, first_line
from mcpo_cli.redaction import redact

MAX_VALUES = 1000
"""The most runs of one sweep; more are taken for a typing error."""


def key_of(override: str) -> str:
    """The key that one override sets."""
    return override.partition("=")[0].lstrip("+~")


def parse(text: str) -> tuple[str, list[str]]:
    """Key and values of one override; a sweep has several values."""
    with reading(text):
        override = read(text)
        if override.is_sweep_override():
            values = list(itertools.islice(override.sweep_string_iterator(), MAX_VALUES + 1))
            if not values:
                raise ValueError("the sweep is empty")
            return override.key_or_group, values
        return override.key_or_group, [override.get_value_element_as_str()]


def read(text: str) -> Any:
    """One override that sets a key, parsed by Hydra."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    refuse_secrets(text)
    with reading(text):
        override = OverridesParser.create().parse_override(text)
    if override.is_delete() or override.is_add() or override.is_force_add() or override.package is not None:
        fix = f"{override.key_or_group}=VALUE"
        raise ConfigError(f"'{text}': settings can be changed, not added, moved or removed", fix=fix)
    return override


def refuse_secrets(setting: str) -> None:
    """Refuses passwords and tokens: settings are stored with every run, and all users can read command lines."""
    if (shown := redact(setting)) != setting:
        raise ConfigError(
            f"'{shown}': a password or a token cannot be a setting, because settings are stored with the run",
            fix="the environment: HF_TOKEN, MLFLOW_TRACKING_URI, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        )


@contextmanager
def reading(text: str) -> Iterator[None]:
    from hydra.errors import HydraException

    try:
        yield
    except (HydraException, ValueError, NotImplementedError) as error:
        hint = "write key=value, for example method=mcpo seed=0,1,2"
        raise ConfigError(f"cannot read the override '{text}': {first_line(error)}", fix=hint) from error
