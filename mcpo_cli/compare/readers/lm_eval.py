"""lm-evaluation-harness 0.4: samples_TASK_DATE.jsonl of `--log_samples`, next to results_DATE.json."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.compare.log import Log, checked
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Options, Reader, Row
from mcpo_cli.errors import bad_data

SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")
METRICS = ("exact_match", "acc", "pass@1", "acc_norm")
"""Metrics in order of preference, if the user names none."""


def read(path: Path, options: Options) -> list[Log]:
    """One log per folder that has samples, which is one per model, with the newest file of each task.

    A task with several filters has a benchmark for each of them, `gsm8k (flexible-extract)`, and counts as one. A
    sample that a filter makes from several repeats counts once, as in the harness.

    Raises:
        ConfigError: a file is damaged, holds a problem twice, or lacks the metric.
    """
    folders = base.newest_of_tasks(_files(path), SAMPLES, lambda file: file.parent)
    return [_log(folder, tasks, options) for folder, tasks in folders.items()]


def _files(path: Path) -> list[Path]:
    return base.files_named(path, "samples_*.jsonl", SAMPLES)


def _log(folder: Path, tasks: Mapping[str, Path], options: Options) -> Log:
    frames, facts, of_filters = [], {}, {}
    for task, file in tasks.items():
        rows, settings = base.json_lines(file, ("doc_id", "filter", "metrics")), _settings(file, task)
        if not all(
            isinstance(row["metrics"], list) and all(isinstance(name, str) for name in row["metrics"]) for row in rows
        ):
            raise base.damaged(file, "the metrics of a row are not a list of names")
        known = [name for name in rows[0]["metrics"] if isinstance(rows[0].get(name), bool | int | float)]
        metric = base.score_name(file, known, options, METRICS)
        filters = list(dict.fromkeys(str(row["filter"]) for row in rows))
        for name in filters:
            benchmark = task if len(filters) == 1 else f"{task} ({name})"
            of_filters[benchmark] = task
            if options.benchmark not in ("", task, benchmark):
                continue
            own = [row for row in rows if str(row["filter"]) == name]
            frames.append(_frame(file, benchmark, own, metric))
            prompts = base.digest(sorted(str(row.get("prompt_hash")) for row in own))[:8]
            facts[benchmark] = {"metric": metric, "prompts": prompts, **settings}
    if not frames:
        raise base.no_task(folder, options, tasks)
    return checked(folder, pd.concat(frames, ignore_index=True), facts, folder.name, of_filters)


def _frame(file: Path, benchmark: str, rows: list[Row], metric: str) -> pd.DataFrame:
    documents = pd.Series([str(row["doc_id"]) for row in rows])
    if (twice := documents[documents.duplicated()]).size:
        raise bad_data(
            f"{file}: it holds document {twice.iloc[0]} twice, so rows of two runs or tasks are in it",
            fix="keep the rows of one: the harness appends to a file of the same name",
        )
    return pd.DataFrame(
        {
            "benchmark": benchmark,
            "problem": [f"{row['doc_id']}-{str(row.get('doc_hash'))[:8]}" for row in rows],
            "correct": [row.get(metric) for row in rows],
            "response": [_text(row.get("resps")) for row in rows],
            "answer": [_text(row.get("filtered_resps")) for row in rows],
            "gold": [str(row.get("target")) for row in rows],
        }
    )


def _text(nested: Any) -> str:
    """The first text in nested lists; an option's log-probability stays as it is written."""
    while isinstance(nested, list) and nested:
        nested = nested[0]
    return str(nested)


def _settings(file: Path, task: str) -> dict[str, str]:
    """The settings of the task in the newest results file that has it; empty without one."""
    for path in sorted(file.parent.glob("results_*.json"), reverse=True):
        try:
            document = json.loads(path.read_bytes())
            config = document["configs"][task]
        except (ValueError, KeyError, TypeError, OSError):
            continue
        facts = {
            "lm_eval": document.get("lm_eval_version"),
            "task version": document.get("versions", {}).get(task),
            "examples": document.get("n-shot", {}).get(task),
            "generation": config.get("generation_kwargs"),
            "chat template": document.get("chat_template_sha"),
            "system instruction": document.get("system_instruction_sha"),
        }
        return base.stated(facts)
    return {}


READER = Reader(
    name="lm_eval",
    about="lm-evaluation-harness 0.4: a folder of --output_path with --log_samples, or one of its samples_*.jsonl",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
