"""Rollouts of verifiers before 0.4: results.jsonl, next to metadata.json."""

import re
from pathlib import Path

from mcpo_cli.compare.log import Log
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Field, LogPart, Options, Reader, TaskFile

FILE = re.compile(r"results\.jsonl")
NEEDED = ("prompt", "completion", "reward")
SCORES = ("reward",)
NO_SCORES = ("example_id", "id", "rollout_id", "step", "advantage")
"""Columns of numbers that say nothing of a response."""
FIELDS: dict[str, Field] = {
    "problem": lambda row: base.name(row.get("example_id", row.get("id", base.digest(base.text(row["prompt"]))))),
    "response": lambda row: base.text(row["completion"]),
    "prompt": lambda row: base.text(row["prompt"]),
    "gold": lambda row: None if row.get("answer") is None else base.text(row["answer"]),
}


def read(path: Path, options: Options) -> list[Log]:
    """The logs of a folder: of each model, or of each of its folders, with the newest file of each environment.

    The score is the reward, which an environment may compute from several; `--columns correct=NAME` takes one of them.

    Raises:
        ConfigError: a file is damaged, or lacks the score or the environment that was asked for.
    """
    return base.of_tasks(map(_task_file, _files(path)), _part, options)


def _files(path: Path) -> list[Path]:
    return base.files_named(path, "results.jsonl", FILE, NEEDED)


def _task_file(path: Path) -> TaskFile:
    about = base.settings_file(path.parent / "metadata.json")
    date = f"{about.get('date', '')} {about.get('time', '')}".strip()
    model = str(about.get("model") or path.parent.name)
    return TaskFile(path, str(about.get("env_id") or "rollouts"), date, path.parent, model)


def _part(file: TaskFile, options: Options) -> LogPart:
    rows = base.rows_of(file.path, NEEDED)
    numbers = [name for name, value in rows[0].items() if isinstance(value, int | float) and name not in NO_SCORES]
    score = base.score_name(file.path, numbers, options, SCORES)
    about = base.settings_file(file.path.parent / "metadata.json")
    facts = base.stated({"metric": score, **{name: about.get(name) for name in ("sampling_args", "env_args")}})
    return LogPart(file.task, base.samples(file.path, rows, {**FIELDS, "correct": score}, options), facts)


READER = Reader(
    name="verifiers",
    about="verifiers before 0.4: a folder of saved rollouts, or one of its results.jsonl",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
