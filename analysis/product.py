"""The declaration of an artifact, and what its `build` returns. `artifacts.py` handles files, records and printing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mcpo_cli.analysis.render import Grid

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mcpo_cli.analysis.frames import Runs

Section = Literal["claims", "paper", "beyond", "audit", "diagnostic"]
"""Section of the report; `diagnostic` artifacts are built only by name, not by `all`."""


@dataclass(frozen=True)
class Product:
    """What `build` computes; the same runs give an equal product."""

    title: str
    """What it is, with scale and regime of the runs."""
    sentence: str
    """One sentence, made from the numbers, on what it shows."""
    data: pd.DataFrame
    """The numbers as tidy rows; undefined numbers are NaN."""
    grids: Sequence[Grid] = ()
    """Tables to print."""
    notes: Sequence[str] = ()
    """How to read it."""
    figure: Figure | None = None


@dataclass(frozen=True)
class Artifact:
    """A table or figure, declared as `ARTIFACT` or in `ARTIFACTS` by a module of `analysis/tables` or `figures`."""

    name: str
    """Name for `mcpo reproduce NAME`."""
    title: str
    section: Section
    needs: tuple[str, ...]
    """Names of the suites whose runs `build` receives; empty if it needs no runs."""
    build: Callable[[Mapping[str, Runs]], Product]
    place: str = ""
    """Its counterpart in the paper (`Figure 2a`); empty if there is none."""
