"""lm-evaluation-harness 0.4: samples_TASK_DATE.jsonl of `--log_samples`, next to results_DATE.json."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpo_cli.compare.log import Log
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Field, LogPart, Options, Reader, Row, TaskFile
from mcpo_cli.errors import ConfigError, bad_data

SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\d(T[\d.-]+)?)\.jsonl")
METRICS = ("exact_match", "acc", "pass@1", "pass_at_1", "prompt_level_strict_acc", "math_verify", "acc_norm", "em")
"""Metrics in order of preference, if the user names none."""
FIELDS: dict[str, Field] = {
    "sample": lambda row: row.get("repeat", 0),
    "prompt_hash": "prompt_hash",
    "problem": lambda row: f"{row['doc_id']}-{str(row.get('doc_hash'))[:8]}",
    "response": lambda row: base.first_text(row.get("resps")),
    "answer": lambda row: base.first_text(row.get("filtered_resps")),
    "gold": lambda row: str(row.get("target")),
}


def read(path: Path, options: Options) -> list[Log]:
    """The logs of a folder: of each model, or of each of its training seeds, with the newest file of each task.

    A task with several filters has a benchmark for each of them, `gsm8k (flexible-extract)`, and counts as one. A
    sample that a filter makes from several repeats counts once, as in the harness.

    Raises:
        ConfigError: a file is damaged, holds a problem twice, or lacks the metric; no task has a known metric.
    """
    return [_log(*of_model, options) for of_model in base.logs_of(map(_task_file, _files(path)))]


def _files(path: Path) -> list[Path]:
    return base.files_named(path, "samples_*.jsonl", SAMPLES)


def _task_file(path: Path) -> TaskFile:
    named = SAMPLES.fullmatch(path.name)
    task, date = (named["task"], named["date"]) if named else ("", "")
    document = base.settings_file(path.parent / f"results_{date}.json")
    model = next((str(document[name]) for name in base.MODEL_NAMES if document.get(name)), path.parent.name)
    return TaskFile(path, task, date, path.parent, model)


def _log(path: Path, model: str, files: Sequence[TaskFile], notes: list[str], options: Options) -> Log:
    parts: list[LogPart] = []
    refused: list[ConfigError] = []
    for file in files:
        if options.benchmark and not re.fullmatch(rf"{re.escape(file.task)}( \(.*\))?", options.benchmark):
            continue
        rows = base.rows_of(file.path, ("doc_id", "filter", "metrics"))
        named = (row["metrics"] for row in rows)
        if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in named):
            raise base.damaged(file.path, "the metrics of a row are not a list of names")
        known = [name for name in rows[0]["metrics"] if isinstance(rows[0].get(name), bool | int | float)]
        try:
            metric = base.score_name(file.path, known, options, METRICS)
        except ConfigError as error:  # the other tasks are compared
            refused.append(error)
            continue
        parts += _filters(file, rows, metric, options)
    if refused and not parts:
        raise refused[0]
    if not parts:
        raise base.no_task(path, options, [file.task for file in files])
    return base.log(path, parts, model, [*notes, *(f"left out: {error.message}" for error in refused)])


def _filters(file: TaskFile, rows: Sequence[Row], metric: str, options: Options) -> Iterator[LogPart]:
    """The samples of each filter of a task."""
    names = list(dict.fromkeys(str(row["filter"]) for row in rows))
    facts = base.stated({"metric": metric, **_settings(file)})
    for name in names:
        benchmark = file.task if len(names) == 1 else f"{file.task} ({name})"
        if options.benchmark in ("", file.task, benchmark):
            chosen = [row for row in rows if str(row["filter"]) == name]
            ids = Counter((str(row["doc_id"]), row.get("repeat", 0)) for row in chosen)
            if (twice := ids.most_common(1)[0])[1] > 1:
                raise bad_data(
                    f"{file.path}: it holds document {twice[0][0]} twice, so rows of two runs or tasks are in it",
                    fix="keep the rows of one: the harness appends to a file of the same name",
                )
            fields: dict[str, Field] = {**FIELDS, "prompt": _prompt, "correct": lambda row: row.get(metric)}
            yield LogPart(benchmark, base.samples(file.path, chosen, fields, options), facts, file.task)


def _prompt(row: Row) -> str | None:
    """The prompt; None in logs that lack it."""
    asked: Any = row.get("arguments")
    if isinstance(asked, Mapping):
        asked = next(iter(asked.values()), None)
        asked = asked.get("arg_0") if isinstance(asked, Mapping) else asked
    return base.first_text(asked) if asked else None


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


READER = Reader(
    name="lm_eval",
    about="lm-evaluation-harness: a folder of --output_path with --log_samples, or one of its samples_*.jsonl",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
