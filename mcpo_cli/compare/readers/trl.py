"""TRL's log of completions (`log_completions=True`): completions/completions_STEP.parquet in the output folder."""

import re
from functools import partial
from pathlib import Path

from mcpo_cli.compare.log import Log
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Field, LogPart, Options, Reader, Row

FILE = re.compile(r"completions_(?P<step>\d+)\.(parquet|jsonl)")
NEEDED = ("step", "prompt", "completion")
OTHERS = ("step", "advantage")
"""Columns of numbers that are not rewards."""
FIELDS: dict[str, Field] = {
    "problem": lambda row: base.digest(base.text(row["prompt"])),
    "response": lambda row: base.text(row["completion"]),
    "prompt": lambda row: base.text(row["prompt"]),
}


def read(path: Path, options: Options) -> list[Log]:
    """One log per folder that has completions, with the last step, or the file that `path` names.

    A problem is named by a hash of its prompt, since the log does not name it. A file holds the last batch generated
    before it was written, which is one of an evaluation if the step had one.

    Raises:
        ConfigError: a file is damaged, or it is not clear which reward is the score.
    """
    return [_log(file, named, options) for file, named in base.last_of_folders(path, _files(path), _step)]


def _files(path: Path) -> list[Path]:
    return base.files_named(path, "completions_*", FILE)


def _step(file: Path) -> int:
    return int(file.stem.rpartition("_")[2])


def _log(file: Path, named: Path, options: Options) -> Log:
    """named: its folder or file, for messages and the name of the seed."""
    rows = base.rows_of(file, NEEDED)
    rewards = [name for name, value in rows[0].items() if isinstance(value, int | float) and name not in OTHERS]
    score = base.score_name(file, rewards, options, rewards if len(rewards) == 1 else ())
    texts = {name: partial(_text, name) for name in ("gold", "answer") if name in rows[0]}
    samples = base.samples(file, rows, {**FIELDS, **texts, "correct": score}, options)
    facts = base.stated({"metric": score, "step": _step(file)})
    return base.log(named, [LogPart(options.benchmark or "completions", samples, facts)])


def _text(name: str, row: Row) -> str:
    return base.text(row[name])


READER = Reader(
    name="trl",
    about="TRL 1: the output folder of a run with log_completions=True, or one of its completions_STEP.parquet",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
