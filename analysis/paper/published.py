"""The paper's published numbers: `paper.yaml` beside this file."""

from functools import cache
from pathlib import Path
from typing import Any

from mcpo_cli.config.reading import read_yaml


@cache
def paper() -> dict[str, Any]:
    """Everything in `paper.yaml`."""
    return read_yaml(Path(__file__).with_name("paper.yaml"))


def figure(name: str) -> dict[str, Any]:
    """The entry of a figure of the paper."""
    entry: dict[str, Any] = paper()["figures"][name]
    return entry
