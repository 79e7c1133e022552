"""verl's dumps of validation (`trainer.validation_data_dir`): a file STEP.jsonl for each validated step."""

import re
from collections.abc import Sequence
from pathlib import Path

from mcpo_cli.compare.log import Log
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Field, LogPart, Options, Reader, Row

FILE = re.compile(r"\d+\.jsonl")
NEEDED = ("input", "output", "score", "step")
UID = re.compile(r"(?P<rollout>.+_\d+)_(?P<turn>\d+)")
"""PROMPT_ROLLOUT_TURN, in dumps of the trainer that writes `uid`."""
SCORES = ("acc", "score")
"""verl reports `acc` if the reward function returns it: `score` may be a reward with penalties, or -1 and 1."""
FIELDS: dict[str, Field] = {
    "problem": lambda row: base.digest(row["input"]),
    "response": "output",
    "prompt": "input",
    "gold": lambda row: str(row.get("gts")),
}


def read(path: Path, options: Options) -> list[Log]:
    """One log per folder that has dumps, with the last step, or the file that `path` names.

    A problem is named by a hash of its input, since dumps do not name it. They mix all data sources of a validation.

    Raises:
        ConfigError: a file is damaged, or lacks the score.
    """
    found = base.last_of_folders(path, _files(path), lambda file: int(file.stem))
    return [_log(file, named, options) for file, named in found]


def _files(path: Path) -> list[Path]:
    return base.files_named(path, "*.jsonl", FILE, NEEDED)


def _log(file: Path, named: Path, options: Options) -> Log:
    """named: its folder or file, for messages and the name of the seed."""
    rows = _last_of_each(base.rows_of(file, NEEDED))
    known = [name for name, value in rows[0].items() if isinstance(value, bool | int | float) and name != "step"]
    score = base.score_name(file, known, options, SCORES)
    answer = {"answer": lambda row: str(row.get("pred"))} if "pred" in rows[0] else {}
    samples = base.samples(file, rows, {**FIELDS, **answer, "correct": score}, options)
    facts = base.stated({"metric": score, "step": rows[0]["step"]})
    return base.log(named, [LogPart(options.benchmark or "validation", samples, facts)])


def _last_of_each(rows: Sequence[Row]) -> list[Row]:
    """The rows without the earlier turns of a rollout, which also have its score."""
    last: dict[str, tuple[int, Row]] = {}
    for index, row in enumerate(rows):
        named = UID.fullmatch(str(row.get("uid")))
        rollout, turn = (named["rollout"], int(named["turn"])) if named else (str(index), 0)
        if rollout not in last or turn > last[rollout][0]:
            last[rollout] = turn, row
    return [row for _, row in last.values()]


READER = Reader(
    name="verl",
    about="verl 0.9: a folder of trainer.validation_data_dir, or one of its STEP.jsonl",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
