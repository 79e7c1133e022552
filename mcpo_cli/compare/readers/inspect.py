"""inspect_ai's logs, .eval and .json, through its own reader, which needs the extra `inspect`."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mcpo_cli import extras, golds
from mcpo_cli.compare.log import Log
from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.columns import Options
from mcpo_cli.errors import bad_data, first_line

FILE = re.compile(r".+\.(eval|json)")
HEAD = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"status":\s*"')
"""The beginning of a .json log."""
LEFT_OUT = {"messages", "events", "store", "attachments"}
"""Parts of samples that are not read, because they are most of a log."""


def _logs(path: Path, files: Sequence[Path], options: Options) -> list[Log]:
    """One log per model, with the newest log of each task and its arguments. Epochs are samples of a problem."""
    specs = {file: _opened(file, header_only=True).eval for file in files}
    variants = {(spec.model, spec.task, _arguments(spec)) for spec in specs.values()}
    counts = Counter((model, task) for model, task, _ in variants)

    def task(file: Path) -> TaskFile:
        spec = specs[file]
        arguments = f" {_arguments(spec)}" if counts[spec.model, spec.task] > 1 else ""
        return TaskFile(file, spec.task + arguments, str(spec.created), path, spec.model)

    return base.of_tasks(path, files, options, task, _parts)


def _arguments(spec: Any) -> str:
    return json.dumps(spec.task_args_passed, sort_keys=True, default=str)


def _files(path: Path) -> list[Path]:
    files = base.files_named(path, "*.*", FILE)
    return [file for file in files if file.suffix == ".eval" or HEAD.match(base.beginning(file))]


def _opened(file: Path, *, header_only: bool = False) -> Any:
    """A log as inspect_ai reads it."""
    extras.require("inspect_ai", f"reading {file}")
    logs = import_module("inspect_ai.log")
    try:
        return logs.read_eval_log(str(file), header_only=header_only, exclude_fields=LEFT_OUT)
    except Exception as error:  # of zip, JSON, pydantic and others
        raise base.damaged(file, first_line(error)) from error


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    log = _opened(file.path)
    if log.status != "success":
        reason = f"{file.path}: this evaluation is not complete: its status is {log.status!r}"
        raise bad_data(reason, fix=f"inspect eval-retry {file.path}")
    samples = log.samples or []
    scores = list(dict.fromkeys(name for sample in samples for name, _, _ in _scores(sample)))
    score = base.score_name(file.path, scores, options, scores if len(scores) == 1 else ())
    rows = [_row(sample, score) for sample in samples]
    return base.parts(
        file, rows, [score], options, fields={name: name for name in rows[0] if name not in ("correct", "doc")},
        preferred=[score], value=lambda row, _: row["correct"], unscored="have no score", facts=_settings(log),
    )  # fmt: skip


def _scores(sample: Any) -> Iterator[tuple[str, Any, Any]]:
    """The name, value and answer of each score; a score that is a dictionary has one name per key."""
    for name, score in (sample.scores or {}).items():
        if isinstance(score.value, dict):
            yield from ((f"{name}.{key}", value, score.answer) for key, value in score.value.items())
        else:
            yield name, score.value, score.answer


def _row(sample: Any, score: str) -> dict[str, Any]:
    """One sample; `correct` is None without a score, which inspect_ai omits or writes as NaN."""
    value, answer = next(((value, answer) for name, value, answer in _scores(sample) if name == score), (None, None))
    return {
        "problem": str(sample.id),
        "sample": sample.epoch,
        "correct": cells.WORDS.get(value.lower(), value) if isinstance(value, str) else value,
        "response": sample.output.completion,
        "answer": "" if answer is None else answer,
        "gold": golds.of_cell(sample.target, cells.text),
        "prompt": sample.input if isinstance(sample.input, str) else "\n".join(turn.text for turn in sample.input),
        "tokens": sample.output.usage.output_tokens if sample.output.usage else None,
        "doc": sample.metadata or {},
    }


def _settings(log: Any) -> dict[str, Any]:
    """The settings of the task."""
    spec, plan = log.eval, log.plan
    steps = json.dumps([step.params for step in plan.steps], sort_keys=True, default=str)
    parts = [config.model_dump(exclude_none=True, mode="json") for config in (spec.model_generate_config, plan.config)]
    return {
        "inspect_ai": spec.packages.get("inspect_ai"),
        "task version": spec.task_version,
        "task arguments": _arguments(spec),
        "solver": f"{', '.join(step.solver for step in plan.steps)} {cells.digest(steps)[:8]}",
        "scorer": ", ".join(scorer.name for scorer in spec.scorers or []),
        "generation": parts[0] | parts[1],
    }


READER = base.of_files(
    name="inspect",
    about="inspect_ai: .eval and .json logs, or a folder of them (needs the extra `inspect`)",
    files=_files,
    logs=_logs,
)
