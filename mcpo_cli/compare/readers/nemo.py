"""NeMo Evaluator's results: results.jsonl of `nel eval`, a sample a line, next to the bundle eval-*.json."""

import re
from pathlib import Path
from typing import Any

from mcpo_cli.compare.log import Log
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Field, LogPart, Options, Reader, Row, TaskFile

FILE = re.compile(r"results\.jsonl")
NEEDED = ("problem_idx", "reward")
SCORES = ("reward",)
NO_SCORES = ("problem_idx", "repeat", "tokens", "latency_ms")
FIELDS: dict[str, Field] = {
    "problem": "problem_idx",
    "sample": lambda row: row.get("repeat", 0),
    "response": lambda row: base.text(row.get("model_response") or ""),
    "answer": lambda row: None if row.get("extracted_answer") is None else base.text(row["extracted_answer"]),
    "gold": lambda row: None if row.get("expected_answer") is None else base.text(row["expected_answer"]),
}
SETTINGS = ("temperature", "top_p", "max_tokens", "seed", "system_prompt", "repeats", "shuffle_seed", "max_problems")


def read(path: Path, options: Options) -> list[Log]:
    """The logs of a folder: of each model, or of each of its runs, with a benchmark for each bundle.

    Raises:
        ConfigError: a file is damaged, or lacks the score or the benchmark that was asked for.
    """
    return base.of_tasks(map(_task_file, _files(path)), _part, options)


def _files(path: Path) -> list[Path]:
    return base.files_named(path, "results.jsonl", FILE, NEEDED)


def _bundle(path: Path) -> dict[str, Any]:
    """The bundle beside a file of results, the newest if there are several; empty without one."""
    bundles = [base.settings_file(file) for file in path.parent.glob("eval-*.json")]
    return max(bundles, key=lambda bundle: str(bundle.get("timestamp")), default={})


def _task_file(path: Path) -> TaskFile:
    bundle = _bundle(path)
    name = base.cell(bundle, "benchmark.name") or path.parent.name
    model = base.cell(bundle, "config.model") or path.parent.name
    return TaskFile(path, str(name), str(bundle.get("timestamp")), path.parent, str(model))


def _part(file: TaskFile, options: Options) -> LogPart:
    rows = base.rows_of(file.path, NEEDED)
    numbers = [name for name, value in rows[0].items() if isinstance(value, int | float) and name not in NO_SCORES]
    score = base.score_name(file.path, numbers, options, SCORES)
    fields: dict[str, Field] = {**FIELDS, "correct": score}
    fields |= {name: name for name in ("prompt", "tokens") if rows[0].get(name) is not None}
    if any(_category(row) for row in rows):
        fields["category"] = _category
    bundle = _bundle(file.path)
    asked = {name: base.cell(bundle, f"config.{name}") for name in SETTINGS}
    facts = base.stated({"metric": score, "nemo-evaluator": bundle.get("sdk_version"), **asked})
    return LogPart(file.task, base.samples(file.path, rows, fields, options), facts)


def _category(row: Row) -> str | None:
    found = base.cell(row, "metadata.category") or base.cell(row, "scoring_details.category")
    return None if found is None else base.name(found)


READER = Reader(
    name="nemo",
    about="NeMo Evaluator: a folder of `nel eval` with eval-*.json and results.jsonl, or its results.jsonl",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
