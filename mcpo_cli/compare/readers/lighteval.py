"""lighteval's details (`--save-details`): details/MODEL/DATE/details_TASK_DATE.parquet, next to results/."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.compare.log import Log, checked
from mcpo_cli.compare.readers import base, tabular
from mcpo_cli.compare.readers.base import Options, Reader, Row
from mcpo_cli.errors import bad_data

FILE = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.parquet")
NEEDED = ("doc", "metric", "model_response")
METRICS = ("extractive_match", "em", "acc")
"""Metrics in order of preference, if the user names none and a task has several."""


def read(path: Path, options: Options) -> list[Log]:
    """One log per model, with the newest file of each task.

    lighteval itself averages over the samples of a problem, so each problem has one score.

    Raises:
        ConfigError: a file is damaged or of another version, holds a problem twice, or lacks the metric.
    """
    models = base.newest_of_tasks(_files(path), FILE, lambda file: file.parents[1])
    return [_log(model, tasks, options) for model, tasks in models.items()]


def _files(path: Path) -> list[Path]:
    return base.files_named(path, "details_*.parquet", FILE)


def _log(model: Path, tasks: Mapping[str, Path], options: Options) -> Log:
    frames, facts = [], {}
    for task, file in tasks.items():
        if options.benchmark not in ("", task):
            continue
        table = tabular.load(file)
        if lacking := [name for name in NEEDED if name not in table.column_names]:
            raise bad_data(f"{file}: it has no column {lacking[0]!r}, which details of lighteval 0.10 and later have")
        rows = table.select(NEEDED).to_pylist()
        known = [name for name, value in (rows[0]["metric"] if rows else {}).items() if isinstance(value, int | float)]
        metric = base.score_name(file, known, options, known if len(known) == 1 else METRICS)
        frames.append(_frame(task, rows, metric))
        first = rows[0]["doc"]
        asked = {"max tokens": first.get("generation_size"), "samples averaged": first.get("num_samples")}
        facts[task] = base.stated(
            {"metric": metric, "prompts": base.prompts(frames[-1]), **asked, **_settings(model, file, task)}
        )
    if not frames:
        raise base.no_task(model, options, tasks)
    return checked(model, pd.concat(frames, ignore_index=True), facts, model=model.name)


def _frame(task: str, rows: list[Row], metric: str) -> pd.DataFrame:
    docs = [row["doc"] for row in rows]
    return pd.DataFrame(
        {
            "benchmark": task,
            # Numbers repeat if files of two tasks were put together, and a text may be asked twice.
            "problem": [f"{doc.get('id', '')}-{base.digest(doc['query'])[:8]}" for doc in docs],
            "sample": 0,
            "correct": [row["metric"].get(metric) for row in rows],
            "response": [base.text((row["model_response"].get("text") or [""])[0]) for row in rows],
            "gold": [_gold(doc) for doc in docs],
            "prompt": [base.text(row["model_response"].get("input") or row["doc"]["query"]) for row in rows],
        }
    )


def _gold(doc: Row) -> str:
    index = doc.get("gold_index")
    first = index[0] if isinstance(index, list) and index else index
    choices = doc.get("choices") or []
    return base.text(choices[first]) if isinstance(first, int) and 0 <= first < len(choices) else ""


def _settings(model: Path, file: Path, task: str) -> dict[str, Any]:
    """The settings of the task in the results file of the same date; empty without one."""
    named = FILE.fullmatch(file.name)
    root = next((folder for folder in model.parents if folder.name == "details"), None)
    if not named or not root:
        return {}
    path = root.parent / "results" / model.relative_to(root) / f"results_{named['date']}.json"
    try:
        document = json.loads(path.read_bytes())
        general, config = document["config_general"], document["config_tasks"].get(task, {})
    except (ValueError, KeyError, TypeError, OSError):
        return {}
    return {
        "lighteval": general.get("lighteval_sha"),
        "task version": document.get("versions", {}).get(task),
        "examples": config.get("num_fewshots"),
        "generation": (general.get("model_config") or {}).get("generation_parameters"),
        "system instruction": (general.get("model_config") or {}).get("system_prompt"),
    }


READER = Reader(
    name="lighteval",
    about="lighteval 0.10 and later: the folder of --output-dir with --save-details, or one details_TASK_DATE.parquet",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
