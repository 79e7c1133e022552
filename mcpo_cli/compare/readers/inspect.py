"""inspect_ai's logs, .eval and .json, through its own reader, which needs the extra `inspect`."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mcpo_cli import extras
from mcpo_cli.compare.log import Log, check_headings
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Options, Part, Reader
from mcpo_cli.errors import bad_data, first_line

HEAD = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"status":\s*"')
"""The beginning of a .json log."""
WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Scores that are words: correct, partial, incorrect and no answer, as inspect_ai's metrics count them."""
COLUMNS = ("problem", "sample", "correct", "response", "answer", "gold", "prompt", "tokens")
LEFT_OUT = {"messages", "events", "store", "attachments"}
"""Parts of samples that are not read, because they are most of a log."""


def read(path: Path, options: Options) -> list[Log]:
    """One log per model, with the newest log of each task and its arguments.

    Epochs are samples of a problem. Samples without a score are left out, and counted in the facts.

    Raises:
        ConfigError: inspect_ai is not installed, or a log is damaged, unfinished, or lacks the score.
    """
    newest: dict[tuple[str, str, str], tuple[str, Path]] = {}
    left: list[tuple[str, Path]] = []
    for file in _files(path):
        spec = _opened(file, header_only=True).eval
        key = (spec.model, spec.task, json.dumps(spec.task_args_passed, sort_keys=True, default=str))
        older, newest[key] = sorted([newest.get(key, ("", file)), (str(spec.created), file)])
        left += [(spec.model, older[1])] if older[0] else []
    variants = Counter((model, task) for model, task, _ in newest)
    found: dict[str, list[tuple[str, Path]]] = {}
    for (model, task, args), (_, file) in newest.items():
        found.setdefault(model, []).append((f"{task} {args}" if variants[model, task] > 1 else task, file))
    check_headings(path, "model", found)
    return [
        _log(path, model, tasks, [f"{file} was left out: a newer log has its task" for of, file in left if of == model],
             options)
        for model, tasks in found.items()
    ]  # fmt: skip


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted([*path.rglob("*.eval"), *path.rglob("*.json")])
    return [file for file in found if file.suffix == ".eval" or (file.suffix == ".json" and _begins_as_log(file))]


def _begins_as_log(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return HEAD.match(opened.read(200)) is not None
    except OSError:
        return False


def _opened(file: Path, *, header_only: bool = False) -> Any:
    """A log as inspect_ai reads it."""
    extras.require("inspect_ai", f"reading {file}")
    logs = import_module("inspect_ai.log")
    try:
        return logs.read_eval_log(str(file), header_only=header_only, exclude_fields=LEFT_OUT)
    except Exception as error:  # of zip, JSON, pydantic and others
        raise base.damaged(file, first_line(error)) from error


def _log(path: Path, model: str, tasks: Sequence[tuple[str, Path]], notes: Sequence[str], options: Options) -> Log:
    parts = []
    for benchmark, file in tasks:
        if options.benchmark not in ("", benchmark):
            continue
        log = _opened(file)
        if log.status != "success":
            raise bad_data(
                f"{file}: this evaluation is not complete: its status is {log.status!r}",
                fix=f"inspect eval-retry {file}",
            )
        samples = log.samples or []
        known = list(dict.fromkeys(name for sample in samples for name, _, _ in _scores(sample)))
        score = base.score_name(file, known, options, known if len(known) == 1 else ())
        rows = [row for sample in samples if (row := _row(sample, score)) is not None]
        if not rows:
            raise bad_data(f"{file}: none of its {len(samples)} samples has a score")
        facts = base.stated(
            {"metric": score, "samples without a score": len(samples) - len(rows) or None, **_settings(log)}
        )
        parts.append(Part(benchmark, base.samples(file, rows, {name: name for name in COLUMNS}, options), facts))
    if not parts:
        raise base.no_task(path, options, [name for name, _ in tasks])
    return base.log(path / model, parts, model, notes)


def _scores(sample: Any) -> Iterator[tuple[str, Any, Any]]:
    """The name, value and answer of each score; a score that is a dictionary has one name per key."""
    for name, score in (sample.scores or {}).items():
        if isinstance(score.value, dict):
            yield from ((f"{name}.{key}", value, score.answer) for key, value in score.value.items())
        else:
            yield name, score.value, score.answer


def _row(sample: Any, score: str) -> dict[str, Any] | None:
    """One sample; None without a score, which inspect_ai omits or writes as NaN."""
    value, answer = next(((value, answer) for name, value, answer in _scores(sample) if name == score), (None, None))
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return {
        "problem": str(sample.id),
        "sample": sample.epoch,
        "correct": WORDS.get(value, value) if isinstance(value, str) else value,
        "response": sample.output.completion,
        "answer": "" if answer is None else answer,
        "gold": base.text(sample.target),
        "prompt": sample.input if isinstance(sample.input, str) else "\n".join(turn.text for turn in sample.input),
        "tokens": sample.output.usage.output_tokens if sample.output.usage else None,
        "doc": sample.metadata or {},
    }


def _settings(log: Any) -> dict[str, Any]:
    """The settings of the task."""
    spec, plan = log.eval, log.plan
    steps = json.dumps([step.params for step in plan.steps], sort_keys=True, default=str)
    return {
        "inspect_ai": spec.packages.get("inspect_ai"),
        "task version": spec.task_version,
        "task arguments": json.dumps(spec.task_args_passed, sort_keys=True, default=str),
        "solver": f"{', '.join(step.solver for step in plan.steps)} {base.digest(steps)[:8]}",
        "scorer": ", ".join(scorer.name for scorer in spec.scorers or []),
        "generation": {
            **spec.model_generate_config.model_dump(exclude_none=True, mode="json"),
            **plan.config.model_dump(exclude_none=True, mode="json"),
        },
    }


READER = Reader(
    name="inspect",
    about="inspect_ai: .eval and .json logs, or a folder of them (needs the extra `inspect`)",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
