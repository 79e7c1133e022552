"""lighteval's details (`--save-details`): details/MODEL/DATE/details_TASK_DATE.parquet, next to results/.

lighteval itself averages over the samples of a problem, so each problem has one score.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any

from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.cells import Field, Row
from mcpo_cli.compare.readers.columns import Options

FILE = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.parquet")
NEEDED = ("doc", "metric", "model_response")
METRICS = ("extractive_match", "em", "acc")
"""Metrics in order of preference, if the user names none and a task has several."""
FIELDS: dict[str, Field] = {
    # Numbers repeat if files of two tasks were put together, and a text may be asked twice.
    "problem": lambda row: f"{row['doc'].get('id', '')}-{cells.digest(row['doc']['query'])[:8]}",
    "sample": lambda row: 0,
    "response": lambda row: cells.first_text(row["model_response"].get("text") or ""),
    "gold": lambda row: _gold(row["doc"]),
    "prompt": lambda row: cells.text(row["model_response"].get("input") or row["doc"]["query"]),
}


def _task_file(path: Path) -> TaskFile:
    match, model = FILE.fullmatch(path.name), path.parents[1]
    return TaskFile(path, match["task"] if match else "", match["date"] if match else "", model, model.name)


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    rows = base.rows_of(file.path, NEEDED)
    scores, first = cells.numbers_in(row["metric"] for row in rows), rows[0]["doc"]
    return base.parts(
        file,
        rows,
        scores,
        options,
        fields=FIELDS,
        preferred=scores if len(scores) == 1 else METRICS,
        value=lambda row, metric: row["metric"].get(metric),
        facts={
            "max tokens": first.get("generation_size"),
            "samples averaged": first.get("num_samples"),
            **_settings(file),
        },
    )


def _gold(doc: Row) -> str:
    index = doc.get("gold_index")
    first = index[0] if isinstance(index, list) and index else index
    choices = doc.get("choices") or []
    return cells.text(choices[first]) if isinstance(first, int) and 0 <= first < len(choices) else ""


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


READER = base.of_files(
    name="lighteval",
    about="lighteval 0.10 and later: the folder of --output-dir with --save-details, or one details_TASK_DATE.parquet",
    files=partial(base.files_named, pattern="details_*.parquet", name=FILE),
    logs=partial(base.of_tasks, task=_task_file, read_parts=_parts),
)
