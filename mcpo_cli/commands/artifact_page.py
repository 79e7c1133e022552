"""Shows a table or figure that was built."""

from collections.abc import Iterator
from functools import partial

from mcpo_cli.commands import console
from mcpo_cli.commands.reply import Part
from mcpo_cli.report.builder import BuiltArtifact


def page(built: BuiltArtifact, *, full: bool) -> Iterator[Part]:
    """An artifact: its sentence, its first table and the notes for that table; the whole artifact with `full`."""
    content, brief = built.page, built.record["brief"]
    is_short = brief is not None and not full
    yield console.paragraph(content.title)
    yield ""
    yield console.paragraph(content.sentence)
    for grid in content.grids[:1] if is_short else content.grids:
        yield from ("", console.paragraph(grid.title), "", grid)
    yield ""
    yield from map(console.remark, brief if is_short else content.notes)
    if built.paths:
        first, *others = built.paths
        suffixes = f", and {' '.join(path.suffix for path in others)} beside it" if others else ""
        yield partial(console.talk, f"written: {first}{suffixes}")
    if is_short:
        hint = f"next: --full prints {len(content.grids) - 1} more tables and how to read them"
        yield partial(console.talk, f"{hint}; mcpo ui shows the curves")


def sentence(built: BuiltArtifact) -> str:
    """An artifact's sentence, in a list of artifacts."""
    return f"{built.name}: {built.record['sentence']}"
