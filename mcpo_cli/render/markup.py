"""Numbers as text, and grids of strings as terminal text, Markdown and LaTeX.

pandas would not make this shorter: `DataFrame.to_latex` does not escape `±`, `<` and `>` and has no `\\resizebox`, and
`DataFrame.to_markdown` needs the package tabulate in place of the three lines of `pipes`.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from mcpo_cli.redaction import visible

LONGEST_WORD, BESIDE_NUMBERS, HEADING = 32, 16, 8
"""Columns of the longest word that a narrow table keeps whole: in a text, in a name next to numbers, in a heading."""
TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": "$<$", ">": "$>$",
    "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{MINUS SIGN}": "$-$",
}  # fmt: skip


Columns = Mapping[str, str | Callable[[Any], str]]
"""By heading: the key of its cells, if rows are mappings, or a function from row to text."""


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
    is_detail: bool = False
    """True if the short form of a page and its LaTeX leave it out."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"{self.title}: {len(row)} cells under {len(self.header)} headings: {', '.join(row)}")

    @classmethod
    def of(cls, title: str, rows: Iterable[Any], columns: "Columns", labels: int, *, is_detail: bool = False) -> "Grid":
        """One line per row."""
        cells = [[cell(row) if callable(cell) else str(row[cell]) for cell in columns.values()] for row in rows]
        return cls(title, list(columns), cells, labels, is_detail)


@dataclass(frozen=True)
class Page:
    """A titled text with tables."""

    title: str
    sentence: str
    """One sentence on what the tables or the figure show."""
    grids: Sequence[Grid]
    notes: Sequence[str]
    """Notes on reading it."""


def tables(grid: Grid, width: int, styles: Mapping[str, str] = MappingProxyType({})) -> Iterator[Table]:
    """The grid for a terminal of `width` columns: names wrap at blanks, numbers are not broken, no text is cut.

    Columns that do not fit side by side follow below, with the names again. styles: by the whole text of a cell.
    """
    least, natural = ([_room(grid, index, wraps=wraps) for index in range(len(grid.header))] for wraps in (True, False))
    names = list(range(grid.labels if grid.labels < len(grid.header) else 1))
    gap = 2 if sum(least) + 2 * (len(least) - 1) <= width else 1
    for indices in _side_by_side([column + gap for column in least], names, width + gap):
        room = width - gap * (len(indices) - 1)
        widths = _widths([least[index] for index in indices], [natural[index] for index in indices], room)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
        for index, columns in zip(indices, widths, strict=True):
            justify: JustifyMethod = "left" if index < grid.labels else "right"
            table.add_column(Text(visible(grid.header[index])), overflow="fold", justify=justify, width=columns)
        for row in grid.rows:
            table.add_row(*(Text(visible(row[index]), style=styles.get(row[index], "")) for index in indices))
        yield table


def aligned(grid: Grid) -> Iterator[str]:
    """The lines of the grid without its title, in columns as wide as their widest cell."""
    lines = [[visible(cell) for cell in row] for row in (grid.header, *grid.rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padding = [" " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        names = [cell + space for cell, space in zip(line[: grid.labels], padding, strict=False)]
        numbers = [space + cell for cell, space in zip(line[grid.labels :], padding[grid.labels :], strict=True)]
        yield "  ".join([*names, *numbers]).rstrip()


def _room(grid: Grid, index: int, *, wraps: bool) -> int:
    """The width of a column of the grid; the least width if its heading and its names wrap at blanks."""
    cells, heading = [visible(row[index]) for row in grid.rows], visible(grid.header[index])
    if not wraps:
        return max(cell_len(line) for text in (heading, *cells) for line in (text.splitlines() or [""]))
    if index >= grid.labels:
        return max([_longest_word([heading], HEADING), *map(cell_len, cells)])
    return _longest_word([heading, *cells], LONGEST_WORD if grid.labels == len(grid.header) else BESIDE_NUMBERS)


def _longest_word(texts: Sequence[str], limit: int) -> int:
    return min(limit, max((cell_len(word) for text in texts for word in text.split()), default=1))


def _side_by_side(rooms: Sequence[int], names: Sequence[int], width: int) -> Iterator[list[int]]:
    """The indices of the columns of each table, the names in all of them. rooms: each column's width with its gap."""
    indices = list(names)
    for index in range(len(names), len(rooms)):
        if len(indices) > len(names) and sum(rooms[column] for column in (*indices, index)) > width:
            yield indices
            indices = list(names)
        indices.append(index)
    yield indices


def _widths(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """The width of each column: columns whose text would wrap share the rest of `room` beyond the least widths."""
    widths, spare = list(least), room - sum(least)
    while spare > 0 and (indices := [index for index, width in enumerate(widths) if width < natural[index]]):
        for index in indices[:spare]:
            widths[index] += 1
        spare -= min(spare, len(indices))
    return widths


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
    """The text on one line with Markdown's special characters escaped, so that it has no markup or image.

    GitHub still makes a link of a bare address, which shows its target.
    """
    return re.sub(r"([\\|*_<`\[\]])", r"\\\1", _one_line(cell))


def code(text: str) -> str:
    """The text as a code span on one line: its fence is longer than any row of backticks in it."""
    rows = re.findall("`+", text)
    fence, room = "`" * (1 + max(map(len, rows), default=0)), " " if rows else ""
    return f"{fence}{room}{_one_line(text)}{room}{fence}"


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)


def tex(page: Page) -> str:
    """One LaTeX float for each table but details, for \\input; needs the packages booktabs and graphicx."""
    head = [f"% {_one_line(page.title)}", "% needs \\usepackage{booktabs,graphicx}", _tex(page.sentence)]
    items = "\n".join(rf"  \item {_tex(note)}" for note in page.notes)
    floats = [_float(grid) for grid in page.grids if not grid.is_detail]
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


def number(value: float, form: str = ".3f") -> str:
    """`value` in this format, or `-` if it is not known."""
    return "-" if math.isnan(value) else f"{value:{form}}"


def share(value: float, low: float = math.nan, high: float = math.nan) -> str:
    """`.412 [.381, .443]`, or `.412` without an interval; `-` if it is not known. Above 10, four digits: `63.41`."""
    texts = [_short(number, "") for number in (value, low, high)]
    return texts[0] if math.isnan(low) else f"{texts[0]} [{texts[1]}, {texts[2]}]"


def signed(value: float) -> str:
    """`+.022`; `-` if it is not known."""
    return _short(value, "+")


def _short(value: float, sign: str) -> str:
    """Three decimals, fewer from 10 on; no 0 before the point, and no sign before a number that is 0 when rounded."""
    digits = 3 if not abs(value) >= 10 else 2 if abs(value) < 100 else 1
    text = number(value, f"{sign}.{digits}f")
    return text[1:].replace("0.", ".", 1) if text == "-0.000" else re.sub(r"^([+-]?)0\.", r"\1.", text)


def short_p(value: float) -> str:
    """`.031`, or `<.001`; `-` without a test."""
    return "<.001" if value < 5e-4 else share(value)


def p_value(value: float) -> str:
    """`0.0312`, or `-` without a test."""
    return number(value, ".4f")


def change(mean: float, half_width: float, digits: int = 3) -> str:
    """`+0.031 ± 0.020`, or the mean alone if it has no interval."""
    return f"{mean:+.{digits}f}" + ("" if math.isnan(half_width) else f" ± {half_width:.{digits}f}")
