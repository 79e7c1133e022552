"""An artifact: a declaration, and what its `build` returns. Files, records and printing are `artifacts.py`'s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from mcpo_cli.analysis.render import Grid
from mcpo_cli.errors import ConfigError, nearest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mcpo_cli.analysis.frames import Runs

Section = Literal["claims", "paper", "beyond", "audit", "diagnostic"]
"""Where an artifact stands in the report; `diagnostic` ones are built when asked for by name, not by `all`."""


@dataclass(frozen=True)
class Product:
    """What was computed. The same runs give an equal one.

    title: what it is, with the scale and the regime of the runs. sentence: one sentence of what it shows, made from the
    numbers. grids: tables to print. notes: how to read it. data: the numbers behind it, tidy; undefined ones are NaN.
    figure: to be saved.
    """

    title: str
    sentence: str
    data: pd.DataFrame
    grids: Sequence[Grid] = ()
    notes: Sequence[str] = ()
    figure: Figure | None = None


@dataclass(frozen=True)
class Artifact:
    """A declaration, `ARTIFACT` or one of `ARTIFACTS` of a module in `analysis/tables` or `figures`, or of a plug-in.

    name: what `mcpo reproduce NAME` builds. place: where the paper has it (`Figure 2a`), empty where it has not.
    needs: the suites whose runs `build` is given, by name; none for what needs no run.
    """

    name: str
    title: str
    section: Section
    needs: tuple[str, ...]
    build: Callable[[Mapping[str, Runs]], Product]
    place: str = ""
    source: Path | None = None
    """A file besides code that it is made from; where that changes it is built again."""

    def __post_init__(self) -> None:
        if self.section not in get_args(Section):
            raise ConfigError(
                f"artifact '{self.name}', section='{self.section}': {nearest(self.section, get_args(Section))}"
            )
