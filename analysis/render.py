"""Grids of strings as terminal text, Markdown and LaTeX.

Written here because pandas would shorten nothing: `DataFrame.to_latex` leaves `±`, `<` and `>` as they are and has no
`\\resizebox`, and its `to_markdown` needs tabulate, a dependency in place of the three lines of `pipes`.
"""

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

UNLIMITED = 1000
"""Columns: wider than any table."""
TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": "$<$", ">": "$>$",
    "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{MINUS SIGN}": "$-$",
}  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """A titled table of strings; the first `labels` columns are left-aligned names, the rest numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1


@dataclass(frozen=True)
class Page:
    """A titled text: one sentence of what it shows, tables, and how to read them."""

    title: str
    sentence: str
    grids: Sequence[Grid]
    notes: Sequence[str]


def text(page: Page, width: int) -> str:
    """For a terminal, without colours: words fold at `width` columns, a row of numbers is never cut or folded."""
    folded = [textwrap.fill(note, width, initial_indent="- ", subsequent_indent="  ") for note in page.notes]
    sentence = textwrap.fill(page.sentence, width)
    return "\n\n".join([page.title, sentence, *(_lines(grid) for grid in page.grids), "\n".join(folded)]) + "\n"


def _lines(grid: Grid) -> str:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, name in enumerate(grid.header):
        # Numbers are narrower than their names.
        number = i >= grid.labels
        heading = Text(name.replace(" ", "\n") if number else name)
        table.add_column(heading, justify="right" if number else "left", vertical="bottom", no_wrap=True)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    file = io.StringIO()
    Console(file=file, width=UNLIMITED, color_system=None, force_terminal=False).print(table)
    return "\n".join([grid.title, *(line.rstrip() for line in file.getvalue().splitlines())])


def markdown(page: Page, level: int = 1) -> str:
    """GitHub-flavoured Markdown; `level` of its main heading."""
    marks = "#" * level
    blocks = [f"{marks} {page.title}", escaped(page.sentence)]
    for grid in page.grids:
        blocks += [f"{marks}# {grid.title}", pipes(grid)]
    blocks += [f"{marks}# Notes", "\n".join(f"- {escaped(note)}" for note in page.notes)]
    return "\n\n".join(blocks) + "\n"


def pipes(grid: Grid) -> str:
    """A table of GitHub-flavoured Markdown, without its title."""
    rule = ["---" if i < grid.labels else "---:" for i in range(len(grid.header))]
    return "\n".join([_pipes(grid.header), f"|{'|'.join(rule)}|", *map(_pipes, grid.rows)])


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(cell: str) -> str:
    """Text in which Markdown marks up nothing."""
    return re.sub(r"([|*_<`])", r"\\\1", cell)


def tex(page: Page) -> str:
    """A LaTeX table float a grid, to be read with \\input; needs the packages booktabs and graphicx."""
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
