"""Renders grids of strings as terminal text, Markdown and LaTeX.

pandas would not make this shorter: `DataFrame.to_latex` does not escape `±`, `<` and `>` and has no `\\resizebox`, and
`DataFrame.to_markdown` needs the package tabulate in place of the three lines of `pipes`.
"""

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from jinja2 import Environment

UNLIMITED = 1000
"""Terminal width in columns, wider than any table."""
TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": "$<$", ">": "$>$",
    "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{MINUS SIGN}": "$-$",
}  # fmt: skip


Columns = Mapping[str, str | Callable[[Any], str]]
"""By heading: the key of a row that is a mapping, or a function from row to text."""


@dataclass(frozen=True)
class Grid:
    """A titled table of strings.

    Raises:
        ValueError: a row has more or fewer cells than the header.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    """Number of leading columns that hold left-aligned names; the others hold numbers."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"{self.title}: {len(row)} cells under {len(self.header)} headings: {', '.join(row)}")

    @classmethod
    def of(cls, title: str, rows: Iterable[Any], columns: "Columns", labels: int) -> "Grid":
        """One line per row."""
        cells = [[cell(row) if callable(cell) else str(row[cell]) for cell in columns.values()] for row in rows]
        return cls(title, list(columns), cells, labels)


@dataclass(frozen=True)
class Page:
    """A titled text with tables."""

    title: str
    sentence: str
    """One sentence on what the tables or the figure show."""
    grids: Sequence[Grid]
    notes: Sequence[str]
    """How to read it."""


def text(page: Page, width: int) -> str:
    """Plain text for a terminal: prose wraps at `width` columns, table rows are never cut or wrapped."""
    folded = [textwrap.fill(note, width, initial_indent="- ", subsequent_indent="  ") for note in page.notes]
    sentence = textwrap.fill(page.sentence, width)
    return "\n\n".join([page.title, sentence, *(_lines(grid) for grid in page.grids), "\n".join(folded)]) + "\n"


def _lines(grid: Grid) -> str:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, name in enumerate(grid.header):
        # Numbers are narrower than their headings, which therefore get one line per word.
        number = i >= grid.labels
        heading = Text(name.replace(" ", "\n") if number else name)
        table.add_column(heading, justify="right" if number else "left", vertical="bottom", no_wrap=True)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    file = io.StringIO()
    Console(file=file, width=UNLIMITED, color_system=None, force_terminal=False).print(table)
    return "\n".join([grid.title, *(line.rstrip() for line in file.getvalue().splitlines())])


def templates(*folders: Path, html: bool) -> "Environment":
    """The templates in `folders` and beside this file. html: texts in them are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def markdown(page: Page, level: int = 1) -> str:
    """GitHub-flavoured Markdown whose main heading has level `level`."""
    marks = "#" * level
    blocks = [f"{marks} {escaped(page.title)}", escaped(page.sentence)]
    for grid in page.grids:
        blocks += [f"{marks}# {escaped(grid.title)}", pipes(grid)]
    blocks += [f"{marks}# Notes", "\n".join(f"- {escaped(note)}" for note in page.notes)]
    return "\n\n".join(blocks) + "\n"


def pipes(grid: Grid) -> str:
    """The table in GitHub-flavoured Markdown, without its title."""
    rule = ["---" if i < grid.labels else "---:" for i in range(len(grid.header))]
    return "\n".join([_pipes(grid.header), f"|{'|'.join(rule)}|", *map(_pipes, grid.rows)])


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(cell: str) -> str:
    """The text on one line with Markdown's special characters escaped: no markup, link or image is left in it."""
    return re.sub(r"([\\|*_<`\[\]])", r"\\\1", _one_line(cell))


def code(text: str) -> str:
    """The text as a code span on one line: its fence is longer than any row of backticks in it."""
    rows = re.findall("`+", text)
    fence, room = "`" * (1 + max(map(len, rows), default=0)), " " if rows else ""
    return f"{fence}{room}{_one_line(text)}{room}{fence}"


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)


def tex(page: Page) -> str:
    """One LaTeX table float per grid, for \\input; needs the packages booktabs and graphicx."""
    head = [f"% {page.title}", "% needs \\usepackage{booktabs,graphicx}", _tex(page.sentence)]
    items = "\n".join(rf"  \item {_tex(note)}" for note in page.notes)
    floats = [_float(grid) for grid in page.grids]
    return "\n\n".join([*head, *floats, "\\begin{itemize}\n" + items + "\n\\end{itemize}"]) + "\n"


def _float(grid: Grid) -> str:
    columns = "l" * grid.labels + "r" * (len(grid.header) - grid.labels)
    rows = [f"{' & '.join(map(_tex, row))} \\\\" for row in (grid.header, *grid.rows)]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_tex(grid.title)}}}",
            rf"\resizebox{{\textwidth}}{{!}}{{\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
        ]
    )


def _tex(cell: str) -> str:
    return "".join(TEX.get(character, character) for character in cell)
