"""Writes a comparison into a folder: tables, pictures, and one page for each reader."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.analysis import render
from mcpo_cli.analysis.figures import base
from mcpo_cli.results import figures, page
from mcpo_cli.results.comparison import Comparison
from mcpo_cli.results.html import html
from mcpo_cli.results.log import TEXTS, Side, plain_rows
from mcpo_cli.runs.journal import finite, write_atomic

DIGITS = "%.10g"
"""Significant digits in CSV files; later ones vary with summation order."""
STEM = "comparison"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How formulas of spreadsheets begin (https://owasp.org/www-community/attacks/CSV_Injection)."""


def write(found: Comparison, sides: Sequence[Side], folder: Path, command: str, margin: float | None) -> list[Path]:
    """Write CSV files of the frames, Markdown, LaTeX, JSON, pictures and `comparison.html`; return the files.

    command: makes them again.

    Raises:
        RunFailed: the folder cannot be written.
    """
    files = dict(_files(found, sides, command, margin))
    for name, content in files.items():
        write_atomic(folder / name, content)
    return [folder / name for name in files]


def _files(
    found: Comparison, sides: Sequence[Side], command: str, margin: float | None
) -> Iterator[tuple[str, str | bytes]]:
    for name, frame in frames(found).items():
        # What models wrote stays out of tables that a spreadsheet opens.
        kept = frame.drop(columns=[column for column in frame if str(column).removeprefix("baseline_") in TEXTS])
        yield f"{name}.csv", kept.map(_as_text).to_csv(index=False, lineterminator="\n", float_format=DIGITS)
    whole = page.page(found)
    yield f"{STEM}.md", render.markdown(whole)
    yield f"{STEM}.tex", render.tex(whole)
    yield f"{STEM}.json", json.dumps(finite(document(found)), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    pictures = {"forest": figures.forest(found, margin), "curves": figures.curves(found)}
    drawn = {name: base.save(figure) for name, figure in pictures.items() if figure is not None}
    for name, kinds in drawn.items():
        for kind, content in kinds.items():
            yield f"{name}.{kind}", content
    yield f"{STEM}.html", html(found, sides, {name: kinds["png"] for name, kinds in drawn.items()}, command)


def _as_text(cell: Any) -> Any:
    """The cell, with an apostrophe before a name that a spreadsheet would run as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def frames(found: Comparison) -> dict[str, pd.DataFrame]:
    """The frames of a comparison by name."""
    values = {field.name: getattr(found, field.name) for field in fields(found)}
    return {name: value for name, value in values.items() if isinstance(value, pd.DataFrame)}


def document(found: Comparison) -> dict[str, Any]:
    """All of it as plain data."""
    return {
        "sentences": page.sentences(found),
        "baseline": found.baseline,
        "warnings": list(found.warnings),
        **{name: plain_rows(frame) for name, frame in frames(found).items()},
    }
