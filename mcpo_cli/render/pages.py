"""What all HTML pages share: templates, the classes of table cells, and long tables that are folded."""

from pathlib import Path
from typing import TYPE_CHECKING

from mcpo_cli.render.markup import Grid
from mcpo_cli.statistics.words import TONES

if TYPE_CHECKING:
    from jinja2 import Environment

KINDS = {**TONES} | dict.fromkeys(("deviates", "dirty", "unknown", "not built"), "bad")
"""CSS class of table cells that begin with these words."""
WORDS = tuple(KINDS)
HOLDS = "(Holm)"
"""The end of verdicts that hold for all tests together; only these are bold."""
NOTHING = ("", "-")
"""Text of empty cells."""
LONG = 40
"""Cells with more characters than this may wrap."""
FOLD = 12
"""Tables with at least as many rows are folded."""


def templates(*folders: Path, html: bool) -> "Environment":
    """The templates in `folders` and in this file's folder. html: texts in them are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"kind": kind, "numbers": numbers}
    environment.globals["fold"] = FOLD
    return environment


def kind(cell: str, is_number: bool) -> str:
    """The CSS classes of a table cell."""
    # One call for most cells: a page may have 50,000.
    has_word = cell.startswith(WORDS)
    tone = next(kind for word, kind in KINDS.items() if cell.startswith(word)) if has_word else ""
    if cell.endswith(HOLDS):
        tone += " holds"
    fold_class = "long" if len(cell) > LONG else ""
    return " ".join(filter(None, ["number" if is_number else "label", fold_class, tone]))


def numbers(grid: Grid) -> list[bool]:
    """For each column, True if it holds numbers: it is not a label, and not all of its cells begin with a letter."""
    columns = [[row[i] for row in grid.rows if row[i] not in NOTHING] for i in range(len(grid.header))]
    return [i >= grid.labels and not all(cell[0].isalpha() for cell in cells) for i, cells in enumerate(columns)]
