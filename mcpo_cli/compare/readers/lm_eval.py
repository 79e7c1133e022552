"""lm-evaluation-harness 0.4: samples_TASK_DATE.jsonl of `--log_samples`, next to results_DATE.json.

Each filter of a task has a benchmark, `gsm8k (flexible-extract)`, which is compared with the same filter of another
log; several filters of a task count as one. A sample that a filter makes from several repeats counts once, as in the
harness.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.cells import Field, Row
from mcpo_cli.compare.readers.columns import Options
from mcpo_cli.errors import bad_data

SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\d(T[\d.-]+)?)\.jsonl")
METRICS = ("exact_match", "acc", "pass@1", "pass_at_1", "prompt_level_strict_acc", "math_verify", "acc_norm", "em")
"""Metrics in order of preference, if the user names none."""


def _prompt(row: Row) -> str | None:
    """The prompt; None in logs that lack it."""
    value: Any = row.get("arguments")
    if isinstance(value, Mapping):
        value = next(iter(value.values()), None)
        value = value.get("arg_0") if isinstance(value, Mapping) else value
    return cells.first_text(value) if value else None


FIELDS: dict[str, Field] = {
    "sample": lambda row: row.get("repeat", 0),
    "prompt_hash": "prompt_hash",
    "problem": lambda row: f"{row['doc_id']}-{str(row.get('doc_hash'))[:8]}",
    "response": lambda row: cells.first_text(row.get("resps")),
    "answer": lambda row: cells.first_text(row.get("filtered_resps")),
    "gold": lambda row: str(row.get("target")),
    "prompt": _prompt,
}


def _task_file(path: Path) -> TaskFile:
    match = SAMPLES.fullmatch(path.name)
    task, date = (match["task"], match["date"]) if match else ("", "")
    document = base.settings_file(path.parent / f"results_{date}.json")
    model = next((str(document[name]) for name in base.MODEL_NAMES if document.get(name)), path.parent.name)
    return TaskFile(path, task, date, path.parent, model)


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    rows = base.rows_of(file.path, ("doc_id", "filter", "metrics"))
    metrics = (row["metrics"] for row in rows)
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in metrics):
        raise base.damaged(file.path, "the metrics of a row are not a list of names")
    ids = Counter((str(row["doc_id"]), str(row["filter"]), row.get("repeat", 0)) for row in rows)
    if (twice := ids.most_common(1)[0])[1] > 1:
        raise bad_data(
            f"{file.path}: it holds document {twice[0][0]} twice, so rows of two runs or tasks are in it",
            fix="keep the rows of one: the harness appends to a file of the same name",
        )
    scores = [name for name in cells.numbers_in(rows) if name in rows[0]["metrics"]]
    return base.parts(
        file, rows, scores, options, fields=FIELDS, preferred=METRICS, value=lambda row, metric: row.get(metric),
        facts=_settings(file), filters="filter",
    )  # fmt: skip


def _settings(file: TaskFile) -> dict[str, Any]:
    """The settings of the task in the results file of the same date; empty without one."""
    document = base.settings_file(file.path.parent / f"results_{file.date}.json")
    of_task = {name: document.get(name, {}).get(file.task) for name in ("configs", "versions", "n-shot")}
    return {
        "lm_eval": document.get("lm_eval_version"),
        "task version": of_task["versions"],
        "examples": of_task["n-shot"],
        "generation": (of_task["configs"] or {}).get("generation_kwargs"),
        "chat template": document.get("chat_template_sha"),
        "system instruction": document.get("system_instruction_sha"),
    }


READER = base.of_files(
    name="lm_eval",
    about="lm-evaluation-harness: a folder of --output_path with --log_samples, or one of its samples_*.jsonl",
    files=partial(base.files_named, pattern="samples_*.jsonl", name=SAMPLES),
    logs=partial(base.of_tasks, task=_task_file, read_parts=_parts),
)
