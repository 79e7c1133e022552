"""`mcpo report`: write all tables, figures and verdicts on the paper's claims to one page."""

from pathlib import Path
from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, Json, Overrides

Against = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of another report (reports/SCALE, of this machine or another): list what moved since.",
        show_default=False,
    ),
]


def report(overrides: Overrides = None, against: Against = None, as_json: Json = False, debug: Debug = False) -> None:
    """Build everything whose runs are done, and write report.html and report.md. Trains nothing."""
    from mcpo_cli import paths
    from mcpo_cli.machine import lasting

    with lasting():
        from mcpo_cli.commands import build_artifacts

    other = paths.named(against) if against else None
    build_artifacts.report(overrides or [], as_json=as_json, against=other)
