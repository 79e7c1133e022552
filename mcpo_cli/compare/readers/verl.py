"""verl's dumps of validation (`trainer.validation_data_dir`): a file STEP.jsonl for each validated step.

A problem is named by a hash of its input, since dumps do not name it. A dump mixes all data sources of a validation.
"""

import re
from collections.abc import Sequence
from functools import partial

from mcpo_cli.compare.readers import base, cells
from mcpo_cli.compare.readers.base import LogPart, TaskFile
from mcpo_cli.compare.readers.cells import Field, Row
from mcpo_cli.compare.readers.columns import Options

FILE = re.compile(r"\d+\.jsonl")
NEEDED = ("input", "output", "score", "step")
UID = re.compile(r"(?P<rollout>.+_\d+)_(?P<turn>\d+)")
"""PROMPT_ROLLOUT_TURN, in dumps of the trainer that writes `uid`."""
SCORES = ("acc", "score")
"""verl reports `acc` if the reward function returns it: `score` may be a reward with penalties, or -1 and 1."""
FIELDS: dict[str, Field] = {
    "problem": lambda row: cells.digest(row["input"]),
    "response": "output",
    "prompt": "input",
    "gold": lambda row: str(row.get("gts")),
}


def _parts(file: TaskFile, options: Options) -> list[LogPart]:
    rows = _last_of_each(base.rows_of(file.path, NEEDED))
    answer = {"answer": lambda row: str(row.get("pred"))} if "pred" in rows[0] else {}
    scores, facts = cells.numbers_in(rows, without=("step",)), {"step": rows[0]["step"]}
    return base.parts(file, rows, scores, options, fields={**FIELDS, **answer}, preferred=SCORES, facts=facts)


def _last_of_each(rows: Sequence[Row]) -> list[Row]:
    """The rows without the earlier turns of a rollout, which also have its score."""
    last: dict[str, tuple[int, Row]] = {}
    for index, row in enumerate(rows):
        match = UID.fullmatch(str(row.get("uid")))
        rollout, turn = (match["rollout"], int(match["turn"])) if match else (str(index), 0)
        if rollout not in last or turn > last[rollout][0]:
            last[rollout] = turn, row
    return [row for _, row in last.values()]


READER = base.of_files(
    name="verl",
    about="verl 0.9: a folder of trainer.validation_data_dir, or one of its STEP.jsonl",
    files=partial(base.files_named, pattern="*.jsonl", name=FILE, cells=NEEDED),
    logs=partial(base.of_last_steps, task="validation", parts=_parts),
)
