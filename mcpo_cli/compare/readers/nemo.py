"""NeMo Evaluator's results: results.jsonl of `nel eval`, a sample a line, next to the bundle eval-*.json."""

import re
from functools import partial
from pathlib import Path
from typing import Any

from mcpo_cli import golds
from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.cells import Field, Row
from mcpo_cli.compare.readers.columns import Options

FILE = re.compile(r"results\.jsonl")
NEEDED = ("problem_idx", "reward")
SCORES = ("reward",)
NO_SCORES = ("problem_idx", "repeat", "tokens", "latency_ms")
FIELDS: dict[str, Field] = {
    "problem": "problem_idx",
    "sample": lambda row: row.get("repeat", 0),
    "response": lambda row: cells.text(row.get("model_response") or ""),
    "answer": lambda row: None if row.get("extracted_answer") is None else cells.text(row["extracted_answer"]),
    "gold": lambda row: golds.of_cell(row.get("expected_answer"), cells.text),
}
SETTINGS = ("temperature", "top_p", "max_tokens", "seed", "system_prompt", "repeats", "shuffle_seed", "max_problems")


def _bundle(path: Path) -> dict[str, Any]:
    """The bundle beside a file of results, the newest if there are several; empty without one."""
    bundles = [base.settings_file(file) for file in path.parent.glob("eval-*.json")]
    return max(bundles, key=lambda bundle: str(bundle.get("timestamp")), default={})


def _task_file(path: Path) -> TaskFile:
    bundle = _bundle(path)
    name = cells.cell(bundle, "benchmark.name") or path.parent.name
    model = cells.cell(bundle, "config.model") or path.parent.name
    return TaskFile(path, str(name), str(bundle.get("timestamp")), path.parent, str(model))


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    rows = base.rows_of(file.path, NEEDED)
    fields = FIELDS | {name: name for name in ("prompt", "tokens") if rows[0].get(name) is not None}
    if any(_category(row) for row in rows):
        fields["category"] = _category
    bundle, scores = _bundle(file.path), cells.numbers_in(rows, without=NO_SCORES)
    settings = {name: cells.cell(bundle, f"config.{name}") for name in SETTINGS}
    facts = {"nemo-evaluator": bundle.get("sdk_version"), **settings}
    return base.parts(file, rows, scores, options, fields=fields, preferred=SCORES, facts=facts)


def _category(row: Row) -> str | None:
    category = cells.cell(row, "metadata.category") or cells.cell(row, "scoring_details.category")
    return None if category is None else cells.name(category)


READER = base.of_files(
    name="nemo",
    about="NeMo Evaluator: a folder of `nel eval` with eval-*.json and results.jsonl, or its results.jsonl",
    files=partial(base.files_named, pattern="results.jsonl", name=FILE, cells=NEEDED),
    logs=partial(base.of_tasks, task=_task_file, read_parts=_parts),
)
