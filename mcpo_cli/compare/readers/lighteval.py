"""lighteval's details (`--save-details`): details/MODEL/DATE/details_TASK_DATE.parquet, next to results/."""

import re
from pathlib import Path
from typing import Any

from mcpo_cli.compare.log import Log
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Field, LogPart, Options, Reader, Row, TaskFile

FILE = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.parquet")
NEEDED = ("doc", "metric", "model_response")
METRICS = ("extractive_match", "em", "acc")
"""Metrics in order of preference, if the user names none and a task has several."""
FIELDS: dict[str, Field] = {
    # Numbers repeat if files of two tasks were put together, and a text may be asked twice.
    "problem": lambda row: f"{row['doc'].get('id', '')}-{base.digest(row['doc']['query'])[:8]}",
    "sample": lambda row: 0,
    "response": lambda row: base.first_text(row["model_response"].get("text") or ""),
    "gold": lambda row: _gold(row["doc"]),
    "prompt": lambda row: base.text(row["model_response"].get("input") or row["doc"]["query"]),
}


def read(path: Path, options: Options) -> list[Log]:
    """One log per model, with the newest file of each task.

    lighteval itself averages over the samples of a problem, so each problem has one score.

    Raises:
        ConfigError: a file is damaged or of another version, holds a problem twice, or lacks the metric.
    """
    return base.of_tasks(map(_task_file, _files(path)), _part, options)


def _files(path: Path) -> list[Path]:
    return base.files_named(path, "details_*.parquet", FILE)


def _task_file(path: Path) -> TaskFile:
    named, model = FILE.fullmatch(path.name), path.parents[1]
    return TaskFile(path, named["task"] if named else "", named["date"] if named else "", model, model.name)


def _part(file: TaskFile, options: Options) -> LogPart:
    rows = base.rows_of(file.path, NEEDED)
    known = [name for name, value in rows[0]["metric"].items() if isinstance(value, int | float)]
    metric = base.score_name(file.path, known, options, known if len(known) == 1 else METRICS)
    first = rows[0]["doc"]
    asked = {"max tokens": first.get("generation_size"), "samples averaged": first.get("num_samples")}
    facts = base.stated({"metric": metric, **asked, **_settings(file)})
    return LogPart(file.task, base.samples(file.path, rows, {**FIELDS, "correct": f"metric.{metric}"}, options), facts)


def _gold(doc: Row) -> str:
    index = doc.get("gold_index")
    first = index[0] if isinstance(index, list) and index else index
    choices = doc.get("choices") or []
    return base.text(choices[first]) if isinstance(first, int) and 0 <= first < len(choices) else ""


def _settings(file: TaskFile) -> dict[str, Any]:
    """The settings of the task in the results file of the same date; empty without one."""
    root = next((folder for folder in file.folder.parents if folder.name == "details"), None)
    if not root:
        return {}
    path = root.parent / "results" / file.folder.relative_to(root) / f"results_{file.date}.json"
    document = base.settings_file(path)
    general = document.get("config_general") or {}
    model = general.get("model_config") or {}
    return {
        "lighteval": general.get("lighteval_sha"),
        "task version": document.get("versions", {}).get(file.task),
        "examples": document.get("config_tasks", {}).get(file.task, {}).get("num_fewshots"),
        "generation": model.get("generation_parameters"),
        "system instruction": model.get("system_prompt"),
    }


READER = Reader(
    name="lighteval",
    about="lighteval 0.10 and later: the folder of --output-dir with --save-details, or one details_TASK_DATE.parquet",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
