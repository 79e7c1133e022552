"""TRL's log of completions (`log_completions=True`): completions/completions_STEP.parquet in the output folder."""

import re
from pathlib import Path

import pandas as pd
import pyarrow as pa

from mcpo_cli.compare.log import Log, checked
from mcpo_cli.compare.readers import base, tabular
from mcpo_cli.compare.readers.base import Options, Reader
from mcpo_cli.errors import bad_data

FILE = re.compile(r"completions_(?P<step>\d+)\.(parquet|jsonl)")
NEEDED = ("step", "prompt", "completion")
OTHERS = ("step", "advantage")
"""Columns of numbers that are not rewards."""


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
    table = tabular.load(file)
    if lacking := [name for name in NEEDED if name not in table.column_names]:
        raise bad_data(f"{file}: it has no column {lacking[0]!r}, which completions of TRL 1 have")
    numbers = [one.name for one in table.schema if pa.types.is_floating(one.type) or pa.types.is_integer(one.type)]
    rewards = [name for name in numbers if name not in OTHERS]
    score = base.score_name(file, rewards, options, rewards if len(rewards) == 1 else ())
    asked = [base.text(prompt) for prompt in table["prompt"].to_pylist()]
    samples = pd.DataFrame(
        {
            "benchmark": options.benchmark or "completions",
            "problem": [base.digest(prompt) for prompt in asked],
            "correct": table[score].to_pylist(),
            "response": [base.text(one) for one in table["completion"].to_pylist()],
            "prompt": asked,
        }
    )
    for name in ("gold", "answer"):
        if (column := options.column(name, table.column_names)) in table.column_names:
            samples[name] = [base.text(one) for one in table[column].to_pylist()]
    facts = base.stated({"metric": score, "step": _step(file)})
    return checked(named, samples, {str(samples["benchmark"].iloc[0]) if len(samples) else "": facts})


READER = Reader(
    name="trl",
    about="TRL 1: the output folder of a run with log_completions=True, or one of its completions_STEP.parquet",
    recognises=lambda path: bool(_files(path)),
    read=read,
)
