"""The declaration of an artifact, and the result of its `build`. `artifacts.py` handles files, records and printing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpo_cli.render.markup import Grid

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from mcpo_cli.measures.frames import Runs

Row = dict[str, Any]
"""One row of a product's data, by column."""
SUMMARY = "Summary"
"""The section whose artifacts are the report's first screen."""
CONCLUSIONS = "Verdicts on claims"
"""The section whose sentences belong to the report's conclusion."""
RESULTS = "Tables and figures"
"""The section of artifacts that name no section."""
DIAGNOSTICS = "Diagnostics"
"""The section whose artifacts are built only by name, not by `all`."""


@dataclass(frozen=True)
class Product:
    """The result of `build`; the same runs give an equal product."""

    title: str
    sentence: str
    """One sentence, made from the numbers, on what it shows."""
    data: pd.DataFrame
    """The numbers as tidy rows; undefined numbers are NaN."""
    grids: Sequence[Grid] = ()
    """Tables to print."""
    notes: Sequence[str] = ()
    """Notes on reading it."""
    figure: Figure | None = None
    brief: Sequence[str] | None = None
    """The notes of the short form, which has the first table only; None: the short form is the whole."""


@dataclass(frozen=True)
class Artifact:
    """A declaration: `ARTIFACT`, or one of `ARTIFACTS`, of a module in `analysis/tables` or `figures`, or a plug-in."""

    name: str
    """Name for `mcpo reproduce NAME`."""
    title: str
    section: str
    """Heading of its section in the report, free to choose; the four above have a meaning."""
    needs: tuple[str, ...]
    """Names of the suites whose runs `build` receives; empty if it needs no runs."""
    build: Callable[[Mapping[str, Runs]], Product]
    place: str = ""
    """What the report shows before its title, such as its number in a paper (`Figure 2a`)."""
    by_regime: bool = False
    """True if it distinguishes regimes; else the runs of a suite must share one."""
    failed_too: bool = False
    """True if it reports failed runs as outcomes; else all runs must be done."""
    source: Path | None = None
    """A file besides code that it is made from; a change of it makes the artifact stale."""
    committed: Sequence[Path] = ()
    """Files of results, if they exist, to show next to its runs' results; a change of one makes the artifact stale."""


def in_report_order(sections: Iterable[str]) -> list[str]:
    """The headings of the report, each once: summary and claims, then others as they come, then diagnostics."""
    headings = [heading for heading in sections if heading not in (SUMMARY, CONCLUSIONS, DIAGNOSTICS)]
    return [SUMMARY, CONCLUSIONS, *dict.fromkeys(headings), DIAGNOSTICS]


def from_csv(name: str, title: str, path: Path, show: Callable[[pd.DataFrame], Product]) -> Artifact:
    """The artifact that is made from a CSV file of rows, without runs; `mcpo reproduce` does not take its name."""

    def build(_: object) -> Product:
        import pandas as pd

        return show(pd.read_csv(path, keep_default_na=False, na_values=["nan"]))

    return Artifact(name, title, DIAGNOSTICS, (), build, source=path)
