"""Samplers choose the prompts of a global step. `sampler=NAME` chooses one, `sampler.*` are its options.

>>> from mcpo_cli.prompt_samplers import get
>>> get("review", share=0.5)
"""

from functools import cache
from typing import Any

from mcpo_cli import plugins
from mcpo_cli.convert import choose
from mcpo_cli.plugins import Found
from mcpo_cli.prompt_samplers import table
from mcpo_cli.prompt_samplers.base import Draw, Finished, Group, Request, Run, Sampler, State, Stream
from mcpo_cli.prompt_samplers.plain import Refill, Uniform, is_of_option, of_option

__all__ = [
    "Draw",
    "Finished",
    "Group",
    "Refill",
    "Request",
    "Run",
    "Sampler",
    "State",
    "Stream",
    "Uniform",
    "get",
    "is_of_option",
    "of_option",
    "registry",
    "table",
]


@cache
def registry() -> Found[type[Sampler]]:
    """All samplers by name, of this package and of plug-ins. Raises ConfigError when two share a name."""
    return plugins.classes("samplers", __name__, Sampler)


def get(name: str, **options: Any) -> Sampler:
    """The sampler `name` with `options` in place of its defaults.

    Raises:
        ConfigError: unknown sampler, unknown option, or an option value out of its range.
    """
    return choose(registry(), "sampler", name, options, fix="mcpo components list sampler")
