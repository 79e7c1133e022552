"""A comparison as one HTML page: pictures, tables, and the problems that changed with the answers of both sides.

All texts of models and files are escaped; the page loads nothing and reads without JavaScript, which only filters.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.analysis import render
from mcpo_cli.results import figures, page
from mcpo_cli.results.comparison import Comparison
from mcpo_cli.results.flips import largest
from mcpo_cli.results.log import TEXTS, Side

MOST = 300
"""Most problems that are shown with their texts."""
KINDS = {"better": "good", "worse": "bad", "equivalent": "good", "not worse": "good"}
"""CSS class of a verdict; others are open."""


def html(found: Comparison, sides: Sequence[Side], pictures: Mapping[str, bytes], command: str) -> str:
    """The page. pictures: PNG files by what they show; command: makes the page again."""
    environment = render.templates(Path(__file__).parent, html=True)
    environment.filters |= {"share": page.share, "kind": lambda word: KINDS.get(word, "")}
    return environment.get_template("comparison.html.jinja").render(
        title=page.title(found),
        sentences=page.sentences(found),
        baseline=found.baseline,
        remarks=[*page.settle(found), *page.pairing(found), *page.legend(found)],
        warnings=found.warnings,
        grid=page.main_grid(found),
        sources=page.sources_grid(found),
        sides=[_about(side) for side in sides],
        flips=flips(found),
        panels=figures.MOST_PANELS,
        benchmarks=found.curves["benchmark"].nunique() if len(found.curves) else 0,
        changed=len(found.flips),
        pictures={name: base64.b64encode(content).decode() for name, content in pictures.items()},
        command=command,
    )


def flips(found: Comparison) -> list[dict[str, Any]]:
    """The problems that changed and have texts, largest change first."""
    rows = found.flips
    texts = [name for name in (*TEXTS, *(f"baseline_{name}" for name in TEXTS)) if name in rows]
    known = rows[rows[texts].notna().any(axis=1)] if texts else rows.head(0)
    blank = dict.fromkeys((*TEXTS, *(f"baseline_{name}" for name in TEXTS)))
    return [
        {**blank, **{str(name): None if pd.isna(value) else value for name, value in row.items()}}
        for row in largest(known, MOST).to_dict("records")
    ]


def _about(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "paths": [str(log.path) for log in side.logs],
        "facts": {name: side.facts(name) for name in side.benchmarks},
        "samples": len(side.samples),
    }
