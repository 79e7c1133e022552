"""OpenCompass's results: DATE/results/MODEL/DATASET.json, with the key `details` of `--dump-eval-details`."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.cells import Field, Row
from mcpo_cli.compare.readers.columns import Options

FILE = re.compile(r".+\.json")
DETAILS = re.compile(rb'"details"\s*:\s*[\[{]')
DATE = re.compile(r"\d{8}_\d{6}")
SCORES = ("correct", "is_correct", "cascade_correct")
"""Scores of a detail; the first that it has counts, as in OpenCompass."""
TEXTS = {"response": ("origin_prediction",), "answer": ("pred", "predictions"), "gold": ("answer", "references")}
FIELDS: dict[str, Field] = {name: name for name in ("problem", "sample", "prompt", *TEXTS)}


def _files(path: Path) -> list[Path]:
    files = base.files_named(path, "*.json", FILE)
    return [
        file for file in files if file.absolute().parents[1].name == "results" and DETAILS.search(base.beginning(file))
    ]


def _task_file(path: Path) -> TaskFile:
    model, dated = path.absolute().parent, path.absolute().parents[2]
    is_dated = DATE.fullmatch(dated.name) is not None
    folder = dated.parent / model.name if is_dated else model
    return TaskFile(path, path.stem, dated.name if is_dated else "", folder, model.name)


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    details = base.settings_file(file.path).get("details")
    items = details.items() if isinstance(details, dict) else enumerate(details or ())
    rows = [row for at, detail in items if isinstance(detail, dict) for row in _samples(str(at), detail)]
    if not rows:
        raise base.damaged(file.path, "its details hold no answers")
    scores = [name for name in SCORES if name in rows[0]]
    fields = {name: field for name, field in FIELDS.items() if any(row.get(name) is not None for row in rows)}
    return base.parts(file, rows, scores, options, fields=fields, preferred=SCORES, facts={})


def _samples(at: str, detail: Row) -> Iterator[dict[str, Any]]:
    """The samples of one detail, whose cells are lists where a data set was evaluated several times."""
    scores = {name: detail[name] for name in SCORES if detail.get(name) is not None}
    number = max((len(value) for value in scores.values() if isinstance(value, list)), default=1)
    for sample in range(number):
        texts = {name: next((detail[key] for key in keys if key in detail), None) for name, keys in TEXTS.items()}
        of_all = {**scores, **texts, "prompt": detail.get("prompt")}
        row = {name: value[sample] if isinstance(value, list) and len(value) == number else value
               for name, value in of_all.items()}  # fmt: skip
        words = {name: None if row[name] is None else cells.text(row[name]) for name in (*TEXTS, "prompt")}
        yield {**row, **words, "problem": cells.name(detail.get("example_abbr", at)), "sample": sample, "doc": detail}


READER = base.of_files(
    name="opencompass",
    about="OpenCompass: a folder with results/MODEL/DATASET.json of --dump-eval-details, or one of these files",
    files=_files,
    logs=partial(base.of_tasks, task=_task_file, read_parts=_parts),
)
