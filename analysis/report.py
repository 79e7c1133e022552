"""Writes the report: `report.html`, which is self-contained, `report.md` for GitHub, and `report.json`.

The same content gives the same bytes, except for the line with the date.
"""

import base64
import json
import re
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mcpo_cli.analysis import render
from mcpo_cli.analysis.artifacts import Built
from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.report_content import Content, Piece
from mcpo_cli.analysis.report_settings import DEVIATES
from mcpo_cli.runs.journal import write_atomic

KINDS = {
    "supported": "good",
    "contradicted": "bad",
    "unresolved": "open",
    "no difference": "open",
    "not testable here": "open",
    "too few runs": "open",
    "not computable": "open",
    "by construction": "open",
    "above": "good",
    "below": "bad",
    DEVIATES: "bad",
    "dirty": "bad",
    "unknown": "bad",
    "not built": "bad",
}
"""CSS class of table cells that begin with these words."""
ALONE = ("supported", "contradicted", "above", "below")
"""Verdicts of a single test, which do not hold for all tests together: they are paler."""
NOTHING = ("", "-")
"""Text of empty cells."""
LONG = 40
"""Cells with more characters than this may wrap."""
DENSITY = 2
"""Image pixels per page pixel, so that pictures are sharp on any screen."""
WIDE = 600
"""Pictures of more page pixels than this are not shrunk to the width of a phone, where nobody could read them."""
SETTINGS_NOTE = (
    "Each setting of the paper's Section 6.1 with its value in these runs, then settings that the paper leaves open. "
    "Suites are named where their values differ."
)


def write(content: Content, folder: Path) -> list[Path]:
    """Write the report into `folder`, which also holds the artifact files that it links to; return its files.

    The page is written a second time under a name of its content, which stays when a later report has other numbers.
    """
    date = f"written on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    document = json.dumps(content.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    files = {"report.html": html(content, date), "report.md": markdown(content, date), "report.json": document}
    if not (folder / content.permalink).exists():
        files[content.permalink] = files["report.html"]
    for name, text in files.items():
        write_atomic(folder / name, text)
    return [folder / name for name in files]


def html(content: Content, date: str) -> str:
    """A self-contained HTML page: pictures, style and the script of its search stand in it."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"base64": _base64, "pixels": _pixels, "kind": _kind, "numbers": _numbers, "slug": _slug}
    template = environment.get_template("report.html.jinja")
    return template.render(content=content, date=date, settings_note=SETTINGS_NOTE, wide=WIDE) + "\n"


def markdown(content: Content, date: str) -> str:
    """GitHub-flavoured Markdown with relative links."""
    return "\n\n".join(_blocks(content, date)) + "\n"


def _blocks(content: Content, date: str) -> Iterator[str]:
    yield f"# {render.escaped(content.title)}"
    yield date
    yield from map(render.escaped, content.first_sentences)
    for piece in content.summary:
        yield f'<a id="{piece.name}"></a>'
        yield from _shown(piece)
    yield _list([f"{name}: **{render.escaped(value)}**" for name, value in content.facts.items()])
    if content.marks:
        yield "\n".join(["> **Before you read a number:**", *(f"> - {render.escaped(mark)}" for mark in content.marks)])
    yield "## Contents"
    yield "\n".join(_contents(content))
    for heading, pieces in content.sections.items():
        yield _heading(2, _slug(heading), heading)
        for piece in pieces:
            yield _heading(3, piece.name, piece.heading)
            yield from _shown(piece)
    yield _heading(2, "settings", "Settings")
    yield SETTINGS_NOTE
    yield render.pipes(content.settings)
    yield _heading(2, "provenance", "Provenance")
    for grid in content.provenance:
        yield f"### {render.escaped(grid.title)}"
        yield render.pipes(grid)


def _contents(content: Content) -> Iterator[str]:
    yield from (f"- [{render.escaped(piece.heading)}](#{piece.name})" for piece in content.summary)
    for heading, pieces in content.sections.items():
        yield f"- [{heading}](#{_slug(heading)})"
        for piece in pieces:
            yield f"  - [{render.escaped(piece.heading)}](#{piece.name}){'' if piece.built else ' (not built)'}"
    yield from ("- [Settings](#settings)", "- [Provenance](#provenance)")


def _shown(piece: Piece) -> Iterator[str]:
    return _built(piece.built, piece.command) if piece.built else _missing(piece)


def _built(built: Built, command: str) -> Iterator[str]:
    page = built.page
    yield render.escaped(page.sentence)
    if picture := built.path(".png"):
        yield f"![{render.escaped(page.title)}]({picture.name})"
    yield f"*{render.escaped(page.title)}*"
    for grid in page.grids:
        yield f"**{render.escaped(grid.title)}**"
        yield render.pipes(grid)
    yield _folded("Notes", _list([render.escaped(note) for note in page.notes]))
    files = ", ".join(f"[{path.name}]({path.name})" for path in built.paths)
    yield f"Files: {files}. Rebuild: {render.code(command)}"


def _missing(piece: Piece) -> Iterator[str]:
    yield f"**not built:** {render.escaped(piece.why)}; {render.code(piece.command)}"
    lines = [line for error in piece.errors for line in error.message.splitlines()]
    yield _folded("What is missing", "\n".join(f"    {line}" for line in lines))


def _heading(level: int, anchor: str, text: str) -> str:
    return f'<a id="{anchor}"></a>\n\n{"#" * level} {render.escaped(text)}'


def _folded(summary: str, text: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _slug(heading: str) -> str:
    """The HTML anchor of a section."""
    return re.sub(r"[^a-z]+", "-", heading.lower())


def _kind(cell: str, is_number: bool) -> str:
    """The CSS classes of a table cell."""
    standing_out = next((kind for word, kind in KINDS.items() if cell.startswith(word)), "")
    if cell in ALONE:
        standing_out += " alone"
    folds = "long" if len(cell) > LONG else ""
    return " ".join(filter(None, ["number" if is_number else "label", folds, standing_out]))


def _numbers(grid: Grid) -> list[bool]:
    """Whether each column holds numbers: it is not a label, and not all of its cells begin with a letter."""
    columns = [[row[i] for row in grid.rows if row[i] not in NOTHING] for i in range(len(grid.header))]
    return [i >= grid.labels and not all(cell[0].isalpha() for cell in cells) for i, cells in enumerate(columns)]


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _pixels(path: Path) -> tuple[int, int]:
    """Width and height on the page, read from the header of the PNG file."""
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return width // DENSITY, height // DENSITY
