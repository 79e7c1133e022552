"""Shows a table or figure that was built."""

from collections.abc import Iterator
from functools import partial

from mcpo_cli.commands import console
from mcpo_cli.commands.reply import Part
from mcpo_cli.report.builder import BuiltArtifact


def page(built: BuiltArtifact, *, full: bool) -> Iterator[Part]:
    """An artifact: its sentence, its first table and the notes for that table; all of it with `full`."""
    whole, brief = built.page, built.record["brief"]
    is_short = brief is not None and not full
    yield console.paragraph(whole.title)
    yield ""
    yield console.paragraph(whole.sentence)
    for grid in whole.grids[:1] if is_short else whole.grids:
        yield from ("", console.paragraph(grid.title), "", grid)
    yield ""
    yield from map(console.remark, brief if is_short else whole.notes)
    if built.paths:
        first, *others = built.paths
        beside = f", and {' '.join(path.suffix for path in others)} beside it" if others else ""
        yield partial(console.talk, f"written: {first}{beside}")
    if is_short:
        more = f"next: --full prints {len(whole.grids) - 1} more tables and how to read them"
        yield partial(console.talk, f"{more}; mcpo ui shows the curves")


def sentence(built: BuiltArtifact) -> str:
    """An artifact's sentence, in a list of artifacts."""
    return f"{built.name}: {built.record['sentence']}"
