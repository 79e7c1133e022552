"""Description of a sampler: what its docstring says."""

import inspect

from mcpo_cli.samplers.base import Sampler

CHECKED = "Checked: "
"""Begins the paragraph of a docstring that says what the sampler was checked against."""


def text(sampler: type[Sampler]) -> str:
    """Source, rule, defaults and differences: the docstring of the class."""
    own = inspect.getdoc(sampler) or ""
    # A dataclass without a docstring gets its signature as one.
    return "" if own.startswith(f"{sampler.__name__}(") else own


def summary(sampler: type[Sampler]) -> str:
    """The first paragraph of `text` in one line."""
    return " ".join(text(sampler).partition("\n\n")[0].split())


def checked(sampler: type[Sampler]) -> str:
    """What it was checked against, in its own words; empty if it does not say."""
    found = [part for part in text(sampler).split("\n\n") if part.startswith(CHECKED)]
    return " ".join("".join(found).removeprefix(CHECKED).split())
