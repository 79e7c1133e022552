"""Writes problems as parquet files in verl's schema, training problems in the order of the training stream.

verl's schema: https://verl.readthedocs.io/en/latest/preparation/prepare_data.html. `extra_info` holds our own fields:
`split`, `index` (position in the stream or tier), `problem` (the text that identifies it) and `grader`; `reward`, the
user's function that rewards training responses, `stops`, the task's stop strings, and `variables`, the chat template's
variables in JSON, if there are any.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from mcpo_cli import tokenization
from mcpo_cli.backends.verl.overrides import Paths
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import functions
from mcpo_cli.prompt_samplers import Refill, is_of_option
from mcpo_cli.records import SOURCES
from mcpo_cli.runs import prompts
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.tasks import Task
from mcpo_cli.tasks.base import Messages

ROWS = 8192
"""Rows held in memory at once; with dynamic sampling the file holds many epochs."""


def row(spec: RunSpec, source: str, split: str, index: int, problem: Problem) -> dict[str, Any]:
    """`problem` in verl's schema."""
    grader = functions.absolute(spec.task.grader_of(source))
    info: dict[str, Any] = {"split": split, "index": index, "problem": problem.text, "grader": grader}
    if functions.is_function(spec.train.reward) and split == "train":
        info["reward"] = functions.absolute(spec.train.reward)
    if spec.task.stops:
        info["stops"] = list(spec.task.stops)
    if spec.task.template_variables:
        info["variables"] = json.dumps({**spec.task.template_variables})
    return {
        "data_source": source,
        "prompt": spec.task.messages(problem),
        "ability": spec.task.name,
        "reward_model": {"style": "rule", "ground_truth": problem.gold},
        "extra_info": info,
    }


def stops(extra_info: Mapping[str, Any]) -> tuple[str, ...]:
    """The stop strings of a row, from its `extra_info`."""
    texts = extra_info.get("stops")
    return () if texts is None else tuple(map(str, texts))


def variables(extra_info: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the chat template of a row, from its `extra_info`."""
    values: dict[str, Any] = json.loads(extra_info.get("variables") or "{}")
    return values


def stream_length(spec: RunSpec) -> int:
    """Maximum number of problems from verl's data loader: every step's batch with all refills, or the panel.

    A sampler that draws by position (`queue.Rounds`) does not use them, but verl requires at least one batch.
    """
    rounds = 1 + spec.train.max_refills if isinstance(spec.sampler, Refill) else 1
    steps = spec.train.steps if is_of_option(spec.sampler) else 1
    return max(steps * spec.train.prompts * rounds, spec.probe.panel)


def write(spec: RunSpec, ids: prompts.Ids, paths: Paths) -> None:
    """Write both files and the record of their sources, unless an earlier attempt did; its prompts must be the same.

    Raises:
        ConfigError: the data cannot be read. RunFailed: see `prompts.check`.
    """
    if not (paths.train.exists() and paths.held_out.exists()):
        _write_all(spec, ids, paths)
    if spec.model.path:
        files = {"training": paths.train, "held out": paths.held_out}
        prompts.check(paths.run, {name: prompts.digest(map(ids, _first(path))) for name, path in files.items()})


def _first(path: Path) -> list[Messages]:
    """The first prompts of a file."""
    import pyarrow.parquet as pq

    batch = next(pq.ParquetFile(path).iter_batches(prompts.SAMPLE, columns=["prompt"]))
    return [messages.as_py() for messages in batch.column("prompt")]


def _write_all(spec: RunSpec, ids: prompts.Ids, paths: Paths) -> None:
    problems, count = spec.task.problems(spec.train, lambda messages: len(ids(messages))), stream_length(spec)
    stream = (
        problem
        for start in range(0, count, ROWS)
        for problem in problems.training(spec.seed, start, min(ROWS, count - start))
    )
    if sources := problems.sources():
        write_atomic(paths.run / SOURCES, json.dumps(sources, indent=2))
    _write(paths.train, _rows(spec, "train", {spec.task.source: stream}))
    _write(paths.held_out, _rows(spec, "held_out", problems.tiers(spec.eval.problems)))


def prompt_ids(folder: Path, task: Task) -> prompts.Ids:
    """Makes the tokens of a prompt of `task` for the model in `folder`."""
    tokenizer = tokenization.load(folder)
    return lambda messages: tokenization.prompt_ids(tokenizer, messages, task.template_variables)


def _rows(spec: RunSpec, split: str, sources: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for source, problems in sources.items():
        for index, problem in enumerate(problems):
            yield row(spec, source, split, index, problem)


def _write(target: Path, rows: Iterator[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target.parent.mkdir(parents=True, exist_ok=True)
    part, first = target.with_suffix(".part"), pa.Table.from_pylist(list(islice(rows, ROWS)))
    with pq.ParquetWriter(part, first.schema, compression="zstd") as file:
        file.write_table(first)
        while batch := list(islice(rows, ROWS)):
            file.write_table(pa.Table.from_pylist(batch, schema=first.schema))
    part.rename(target)
