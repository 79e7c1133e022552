"""Writes a comparison into a folder: tables, pictures, and a page that shows all of it.

All texts of models and files are escaped in the page, which loads no other files and needs no JavaScript.
"""

import base64
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pandas as pd

from mcpo_cli import __version__, redaction
from mcpo_cli.compare import forest, page
from mcpo_cli.compare.comparison import Comparison
from mcpo_cli.compare.flips import largest_flips
from mcpo_cli.compare.log import TEXTS, Side, plain_rows
from mcpo_cli.compare.subjects import Answer
from mcpo_cli.compare.training import Training
from mcpo_cli.render import markup, pages
from mcpo_cli.runs.journal import finite, write_atomic

if TYPE_CHECKING:
    from jinja2 import Template

DIGITS = "%.10g"
"""Significant digits in CSV files; later ones vary with summation order."""
STEM = "comparison"
OF_TRAINING = [f"{field.name}.csv" for field in fields(Training) if field.type is pd.DataFrame]
NOT_ALWAYS = ("gate.md", "forest.svg", "curves.png", "curves.pdf", *OF_TRAINING)
"""Files that only some comparisons have; files of an earlier one in the same folder would be taken for this one's."""
FORMULA = ("=", "+", "-", "@", "\t")
"""Characters that begin formulas of spreadsheets (https://owasp.org/www-community/attacks/CSV_Injection)."""
MOST = 300
"""Most problems that are shown with their scores, and with their texts; of other problems the page has the names."""
FIRST_WARNINGS, FIRST_FLIPS = 3, 10
"""Most warnings, and most problems with their texts, that are not folded."""
LEARNING = (
    "Mean over tiers of each arm at each cost; in the last row the share of runs and tiers that score above a level"
)


def write(answer: Answer, folder: Path, command: str) -> list[Path]:
    """Write CSV files of the frames, Markdown, LaTeX, JSON, pictures and `comparison.html`; return the files.

    A file of an earlier comparison in the folder is deleted if this comparison has no such file.

    command: the command that makes the files again.

    Raises:
        RunFailed: the folder cannot be written.
    """
    files = dict(_files(answer, command))
    for name, content in files.items():
        write_atomic(folder / name, content)
    for name in set(NOT_ALWAYS) - files.keys():
        (folder / name).unlink(missing_ok=True)
    return [folder / name for name in files]


def _files(answer: Answer, command: str) -> Iterator[tuple[str, str | bytes]]:
    comparison = answer.comparison
    for name, frame in frames(comparison).items():
        # Texts of models stay out of tables that a spreadsheet opens.
        table = frame.drop(columns=[column for column in frame if str(column).removeprefix("baseline_") in TEXTS])
        yield f"{name}.csv", table.map(_as_text).to_csv(index=False, lineterminator="\n", float_format=DIGITS)
    main_page = page.page(comparison, answer.title)
    yield f"{STEM}.md", markup.markdown(main_page)
    if answer.comparison.gate:
        yield "gate.md", answer.comparison.gate.markdown()
    yield f"{STEM}.tex", markup.tex(main_page)
    yield f"{STEM}.json", orjson.dumps(finite(document(answer)), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    rows = page.shown_rows(comparison)
    picture = _template("forest.svg.jinja").render(forest.layout(comparison, rows)) if rows else ""
    if picture:
        yield "forest.svg", picture
    curves = _curves(comparison)
    for kind, content in curves.items():
        yield f"curves.{kind}", content
    yield f"{STEM}.html", html(answer, picture, curves.get("png", b""), command)


def _template(name: str) -> "Template":
    environment = pages.templates(Path(__file__).parent, html=True)
    environment.filters |= {"share": markup.share}
    return environment.get_template(name)


def _curves(comparison: Comparison) -> dict[str, bytes]:
    """The files of pass@k against k, or of learning curves, by type; none if all problems have one sample."""
    if not comparison.training and (comparison.curves.empty or comparison.curves["k"].max() == 1):
        return {}
    # Importing matplotlib takes longer than comparing two files.
    from mcpo_cli.compare import figures
    from mcpo_cli.render.figures import base

    return base.save(figures.curves(comparison))


def _as_text(cell: Any) -> Any:
    """The cell, with an apostrophe before a name that a spreadsheet would run as a formula."""
    cell = redaction.visible(cell) if isinstance(cell, str) else cell  # a bare \r would begin a row
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def frames(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """The frames of a comparison by name, with the frames of the training of runs."""
    values = {field.name: getattr(comparison, field.name) for field in fields(comparison)}
    if comparison.training:
        values |= {field.name: getattr(comparison.training, field.name) for field in fields(comparison.training)}
    return {name: value for name, value in values.items() if isinstance(value, pd.DataFrame)}


def document(answer: Answer) -> dict[str, Any]:
    """The whole answer as plain data."""
    comparison, training = answer.comparison, answer.comparison.training
    costs = [] if training is None else [
        {"at": at, "model": model, "cost": cost} for (at, model), cost in training.where.items()
    ]  # fmt: skip
    return {
        "title": answer.title,
        **({"gate": answer.comparison.gate.to_json()} if answer.comparison.gate else {}),
        "sentences": page.sentences(comparison),
        "baseline": comparison.baseline,
        "metric": comparison.metric,
        "level": comparison.level,
        "warnings": list(comparison.warnings),
        "costs": costs,
        **{name: plain_rows(frame) for name, frame in frames(comparison).items()},
    }


def html(answer: Answer, picture: str, curves: bytes, command: str) -> str:
    """The page. picture: of the differences, as SVG; curves: as PNG; command: the command that makes the page again."""
    comparison = answer.comparison
    return _template("comparison.html.jinja").render(
        title=answer.title,
        sentences=[*([answer.comparison.gate.sentence] if answer.comparison.gate else []), *page.sentences(comparison)],
        baseline=comparison.baseline,
        remarks=page.remarks(comparison),
        warnings=comparison.warnings,
        first_warnings=FIRST_WARNINGS,
        first_flips=FIRST_FLIPS,
        grid=page.main_grid(comparison),
        grids=page.detail_grids(comparison),
        details=page.details(comparison),
        sides=[_facts(side) for side in answer.sides],
        flips=flips(comparison),
        changes=page.flips_grid(comparison, MOST),
        others=_names_of_others(comparison),
        picture=picture,
        picture_caption=forest.caption(comparison),
        curves="Learning curves" if comparison.training else "pass@k",
        curves_caption=LEARNING if comparison.training else "",
        curves_picture=base64.b64encode(curves).decode(),
        panels=page.MOST_BENCHMARKS,
        benchmarks=comparison.curves["benchmark"].nunique() if len(comparison.curves) else 2,
        counts=page.counts(comparison),
        date=f"written on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by mcpo {__version__}",
        command=command,
    )


def _names_of_others(comparison: Comparison) -> dict[str, str]:
    """The problems that changed beyond the first MOST, by benchmark, arm and direction."""
    rows = largest_flips(comparison.flips)[MOST:]
    gained = (rows["score"] < rows["baseline_score"]) == comparison.lower
    direction = np.where(gained, "gained", "lost")
    groups = rows.groupby([rows["benchmark"], rows["arm"], direction], sort=False)["problem"]
    return {", ".join(map(str, key)): ", ".join(map(str, names)) for key, names in groups}


def flips(comparison: Comparison) -> list[dict[str, Any]]:
    """The problems that changed and have texts, largest change first."""
    rows = comparison.flips
    texts = [name for name in (*TEXTS, *(f"baseline_{name}" for name in TEXTS)) if name in rows]
    selection = rows[rows[texts].notna().any(axis=1)] if texts else rows.head(0)
    blank = dict.fromkeys((*TEXTS, *(f"baseline_{name}" for name in TEXTS)))
    return [
        {**blank, **{str(name): None if pd.isna(value) else value for name, value in row.items()}}
        for row in largest_flips(selection)[:MOST].to_dict("records")
    ]


def _facts(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "paths": [str(log.path) for log in side.logs],
        "facts": {name: side.facts(name) for name in side.benchmarks},
        "samples": len(side.samples),
    }
