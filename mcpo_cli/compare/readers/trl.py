"""TRL's log of completions (`log_completions=True`): completions/completions_STEP.parquet in the output folder.

A problem is named by a hash of its prompt, since the log does not name it. A file holds the last batch generated before
it was written: an evaluation's batch if the step had an evaluation.
"""

import re
from functools import partial

from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.cells import Field, Row
from mcpo_cli.compare.readers.columns import Options

FILE = re.compile(r"completions_\d+\.(parquet|jsonl)")
NEEDED = ("step", "prompt", "completion")
OTHERS = ("step", "advantage")
"""Columns of numbers that are not rewards."""
FIELDS: dict[str, Field] = {
    "problem": lambda row: cells.digest(cells.text(row["prompt"])),
    "response": lambda row: cells.text(row["completion"]),
    "prompt": lambda row: cells.text(row["prompt"]),
}


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    rows = base.rows_of(file.path, NEEDED)
    rewards = cells.numbers_in(rows, without=OTHERS)
    texts = {name: partial(_text, name) for name in ("gold", "answer") if name in rows[0]}
    preferred, facts = rewards if len(rewards) == 1 else (), {"step": int(file.path.stem.rpartition("_")[2])}
    return base.parts(file, rows, rewards, options, fields={**FIELDS, **texts}, preferred=preferred, facts=facts)


def _text(name: str, row: Row) -> str:
    return cells.text(row[name])


READER = base.of_files(
    name="trl",
    about="TRL 1: the output folder of a run with log_completions=True, or one of its completions_STEP.parquet",
    files=partial(base.files_named, pattern="completions_*", name=FILE),
    logs=partial(base.of_last_steps, task="completions", parts=_parts),
)
