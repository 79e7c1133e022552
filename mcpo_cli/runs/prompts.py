"""Whether prompts are what they were when a run or an evaluation began: its records have a digest of their tokens.

A prompt depends on files and settings, whose digests name the run. Code of other packages turns both into tokens, and
it may change between two attempts.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.errors import RunFailed
from mcpo_cli.runs.journal import read_json, write_json
from mcpo_cli.tasks.base import Messages, Problems

FILE = "prompts.json"
SAMPLE = 16
"""Problems of each source whose prompts are compared."""

Ids = Callable[[Messages], Sequence[int]]
"""The tokens of a prompt."""


def digest(prompts: Iterable[Sequence[int]]) -> str:
    """12 hex digits over the tokens of prompts, in their order."""
    total = hashlib.sha256()
    for ids in prompts:
        total.update(f"{[int(token) for token in ids]}\n".encode())
    return total.hexdigest()[:12]


def check_run(run_dir: Path, spec: RunSpec, problems: Problems, ids: Ids) -> None:
    """See `check`, for the first prompts of a run: of training, and of each held-out tier."""
    sources: dict[str, Iterable[Problem]] = {
        "training": problems.training(spec.seed, 0, SAMPLE),
        **problems.tiers(spec.eval.problems),
    }
    digests = {
        name: digest(ids(spec.task.messages(problem)) for problem in islice(listed, SAMPLE))
        for name, listed in sources.items()
    }
    check(run_dir, digests)


def check(folder: Path, digests: Mapping[str, str]) -> None:
    """Compare digests of prompts, by source, with the records of `folder`, and add new sources to the records.

    Raises:
        RunFailed: the prompts of a source have changed.
    """
    path = folder / FILE
    recorded: dict[str, str] = read_json(path) if path.exists() else {}
    if changes := [name for name, value in digests.items() if recorded.get(name, value) != value]:
        raise RunFailed(
            f"{folder.name} began with other prompts of {', '.join(changes)}: the same text and model now become other "
            "tokens, because transformers, tokenizers or mcpo have changed",
            fix="install the versions that provenance.json in its first attempt names, or delete it and start anew",
            code="changed",
        )
    if not recorded.keys() >= digests.keys():
        write_json(path, {**recorded, **digests})
