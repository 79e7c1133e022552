"""lm-evaluation-harness 0.4: samples_TASK_DATE.jsonl of `--log_samples`, with the results_DATE.json beside them."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.results.log import Log, checked
from mcpo_cli.results.readers.base import Options, Reader, damaged

SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")
METRICS = ("exact_match", "acc", "pass@1", "acc_norm")
"""Metrics in the order in which one is taken where nobody names one."""
Row = dict[str, Any]


def read(path: Path, options: Options) -> list[Log]:
    """One log per folder that has samples, which is one per model; the newest file of each task counts.

    A task with several filters is one benchmark for each: `gsm8k (flexible-extract)`. A sample that was filtered out
    of several repeats counts once, as the harness scores it.

    Raises:
        ConfigError: a file is damaged, holds a problem twice, or lacks the metric.
    """
    folders: dict[Path, dict[str, Path]] = {}
    for file in _files(path):
        named = SAMPLES.fullmatch(file.name)
        if named:
            tasks = folders.setdefault(file.parent, {})
            tasks[named["task"]] = max(tasks.get(named["task"], file), file)
    return [_log(folder, tasks, options) for folder, tasks in folders.items()]


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted(path.rglob("samples_*.jsonl"))
    return [file for file in found if SAMPLES.fullmatch(file.name)]


def _log(folder: Path, tasks: Mapping[str, Path], options: Options) -> Log:
    frames, facts = [], {}
    for task, file in tasks.items():
        rows, settings = _rows(file), _settings(file, task)
        metric = _metric(file, rows, options)
        filters = list(dict.fromkeys(str(row["filter"]) for row in rows))
        for name in filters:
            benchmark = task if len(filters) == 1 else f"{task} ({name})"
            if options.benchmark not in ("", task, benchmark):
                continue
            own = [row for row in rows if str(row["filter"]) == name]
            frames.append(_frame(file, benchmark, own, metric))
            prompts = hashlib.sha256("".join(str(row.get("prompt_hash")) for row in own).encode())
            facts[benchmark] = {"metric": metric, "prompts": prompts.hexdigest()[:8], **settings}
    if not frames:
        raise ConfigError(f"{folder}: it has no task {options.benchmark!r}: {nearest(options.benchmark, tasks)}")
    return checked(folder, pd.concat(frames, ignore_index=True), facts)


def _rows(file: Path) -> list[Row]:
    """The rows of a file of samples, complete ones."""
    try:
        rows: list[Row] = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        lacking = [name for name in ("doc_id", "filter", "metrics") if not all(name in row for row in rows)]
    except (ValueError, TypeError, OSError) as error:
        raise damaged(file, error) from error
    if lacking or not rows:
        raise damaged(file, f"its rows lack {lacking[0]}" if lacking else "there are no rows in it")
    names = [row["metrics"] if isinstance(row, dict) else None for row in rows]
    if not all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in names):
        raise damaged(file, "a row is no object, or its metrics are no list of names")
    return rows


def _metric(file: Path, rows: list[Row], options: Options) -> str:
    known = [name for name in rows[0]["metrics"] if isinstance(rows[0].get(name), bool | int | float)]
    wanted = options.columns.get("correct", "")
    if wanted and wanted not in known:
        raise ConfigError(f"{file}: it has no metric {wanted!r}: {nearest(wanted, known)}")
    for name in (wanted, *METRICS):
        if name in known:
            return name
    raise ConfigError(
        f"{file}: none of its metrics says whether a response is correct: {', '.join(known) or 'there are none'}",
        fix="name one whose values are 0 and 1, or between them: --columns correct=NAME",
    )


def _frame(file: Path, benchmark: str, rows: list[Row], metric: str) -> pd.DataFrame:
    problems = [f"{row['doc_id']}-{str(row.get('doc_hash'))[:8]}" for row in rows]
    if len(set(problems)) < len(problems):
        twice = next(name for name in problems if problems.count(name) > 1)
        raise ConfigError(
            f"{file}: it holds document {twice.partition('-')[0]} twice",
            fix="the harness appends to a file of the same second: keep one run's rows",
        )
    return pd.DataFrame(
        {
            "benchmark": benchmark,
            "problem": problems,
            "correct": [row.get(metric) for row in rows],
            "response": [_text(row.get("resps")) for row in rows],
            "answer": [_text(row.get("filtered_resps")) for row in rows],
            "gold": [str(row.get("target")) for row in rows],
        }
    )


def _text(nested: Any) -> str:
    """The first text in lists of lists; an option's log-probability as it is written."""
    while isinstance(nested, list) and nested:
        nested = nested[0]
    return str(nested)


def _settings(file: Path, task: str) -> dict[str, str]:
    """How the task was asked, by the newest results file that knows it; nothing if there is none."""
    for path in sorted(file.parent.glob("results_*.json"), reverse=True):
        try:
            document = json.loads(path.read_bytes())
            config = document["configs"][task]
        except (ValueError, KeyError, TypeError, OSError):
            continue
        return {
            "lm_eval": str(document.get("lm_eval_version")),
            "task version": str(document.get("versions", {}).get(task)),
            "examples": str(document.get("n-shot", {}).get(task)),
            "generation": json.dumps(config.get("generation_kwargs"), sort_keys=True),
            "chat template": str(document.get("chat_template_sha")),
            "system instruction": str(document.get("system_instruction_sha")),
        }
    return {}


READER = Reader(
    name="lm_eval",
    about="lm-evaluation-harness 0.4: a folder of --output_path with --log_samples, or one of its samples_*.jsonl",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
