"""Rollouts of verifiers before 0.4: results.jsonl, next to metadata.json.

The score is the reward, which an environment may compute from several; `--columns correct=NAME` takes one of them.
"""

import re
from functools import partial
from pathlib import Path

from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.cells import Field
from mcpo_cli.compare.readers.columns import Options

FILE = re.compile(r"results\.jsonl")
NEEDED = ("prompt", "completion", "reward")
SCORES = ("reward",)
NO_SCORES = ("example_id", "id", "rollout_id", "step", "advantage")
"""Columns of numbers that say nothing of a response."""
FIELDS: dict[str, Field] = {
    "problem": lambda row: cells.name(row.get("example_id", row.get("id", cells.digest(cells.text(row["prompt"]))))),
    "response": lambda row: cells.text(row["completion"]),
    "prompt": lambda row: cells.text(row["prompt"]),
    "gold": lambda row: None if row.get("answer") is None else cells.text(row["answer"]),
}


def _task_file(path: Path) -> TaskFile:
    metadata = base.settings_file(path.parent / "metadata.json")
    date = f"{metadata.get('date', '')} {metadata.get('time', '')}".strip()
    model = str(metadata.get("model") or path.parent.name)
    return TaskFile(path, str(metadata.get("env_id") or "rollouts"), date, path.parent, model)


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    rows = base.rows_of(file.path, NEEDED)
    metadata = base.settings_file(file.path.parent / "metadata.json")
    scores = cells.numbers_in(rows, without=NO_SCORES)
    facts = {name: metadata.get(name) for name in ("sampling_args", "env_args")}
    return base.parts(
        file, rows, scores, options, fields=FIELDS, preferred=SCORES, facts=facts, unscored="have no score"
    )  # fmt: skip


READER = base.of_files(
    name="verifiers",
    about="verifiers before 0.4: a folder of saved rollouts, or one of its results.jsonl",
    files=partial(base.files_named, pattern="results.jsonl", name=FILE, cells=NEEDED),
    logs=partial(base.of_tasks, task=_task_file, read_parts=_parts),
)
