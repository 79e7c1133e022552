"""Problems as verl reads them: parquet files in its schema, training problems in the order of the training stream.

verl's schema: https://verl.readthedocs.io/en/latest/preparation/prepare_data.html. Ours is in `extra_info`:
`split`, `index` (place in the stream or in its tier), `problem` (the text that identifies it) and `grader`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from mcpo_cli import data, tasks
from mcpo_cli.backends.verl.overrides import Paths
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Loaded, Problem
from mcpo_cli.data.prompt import render
from mcpo_cli.errors import ConfigError
from mcpo_cli.records import SOURCES, DataSource
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.tasks.base import from_pool

ROWS = 8192
"""Rows that are in memory at once: with dynamic sampling the file holds many epochs."""
Fits = Callable[[str], bool]


@dataclass(frozen=True)
class Problems:
    """What `spec` trains and evaluates on.

    fits: whether a prompt (the text of the user's turn) is short enough; others are never trained on.
    """

    spec: RunSpec
    fits: Fits

    @cached_property
    def loaded(self) -> dict[str, Loaded]:
        """The published data sets by name: what is trained on, then the benchmarks; none for arithmetic.

        Raises:
            ConfigError: the data cannot be read, or a benchmark is not whole.
        """
        task, file = self.spec.task, path(self.spec)
        if task.name == "arithmetic":
            return {}
        return {task.data: data.load(task.data, file), **{name: whole(name, file) for name in task.benchmarks}}

    @cached_property
    def pool(self) -> Sequence[Problem]:
        """The math problems to train on, by id.

        Raises:
            ConfigError: the data cannot be read, or fewer fit than one batch has.
        """
        task, train = self.spec.task, self.spec.train
        every = self.loaded[task.data].problems
        pool = [problem for problem in every if self.fits(turn(self.spec, problem))]
        if len(pool) < train.prompts:
            raise ConfigError(
                f"{task.data}: {len(pool)} of {len(every)} problems fit into train.max_prompt={train.max_prompt} "
                f"tokens; a batch has {train.prompts}",
                fix=f"train.max_prompt={2 * train.max_prompt}",
            )
        return pool

    def training(self, start: int, count: int) -> list[Problem]:
        """Problems `start` to `start + count` of the training stream, for arithmetic the local backend's."""
        if self.spec.task.name == "arithmetic":
            return tasks.of(self.spec).training(self.spec.seed, start, count)
        return from_pool(self.pool, self.spec.seed, start, count)

    def held_out(self) -> dict[str, Sequence[Problem]]:
        """The problems of each tier."""
        spec = self.spec
        if spec.task.name == "arithmetic":
            return dict(tasks.of(spec).tiers(spec.eval.problems))
        return {name: self.loaded[name].problems for name in spec.task.benchmarks}

    def sources(self) -> dict[str, DataSource]:
        """Where the published data sets came from, and what was in them."""
        left_out = {self.spec.task.data: len(self.loaded[self.spec.task.data].problems) - len(self.pool)}
        return {
            name: DataSource(
                digest=found.digest,
                source=found.source,
                problems=len(found.problems),
                left_out=left_out.get(name, 0),
            )
            for name, found in self.loaded.items()
        }


def turn(spec: RunSpec, problem: Problem) -> str:
    """The user's turn for `problem`."""
    return render(spec.task.prompt, problem.text) if spec.task.name == "math" else problem.text


def row(spec: RunSpec, source: str, split: str, index: int, problem: Problem) -> dict[str, Any]:
    """`problem` in verl's schema."""
    grader = "math_verify" if spec.task.name == "math" else "exact"
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": turn(spec, problem)}],
        "ability": spec.task.name,
        "reward_model": {"style": "rule", "ground_truth": problem.gold},
        "extra_info": {"split": split, "index": index, "problem": problem.text, "grader": grader},
    }


def stream_length(spec: RunSpec) -> int:
    """Problems that training can ask for: every step's batch, all its refills under dynamic sampling, and the panel."""
    rounds = 1 + spec.train.max_refills if spec.method.dynamic_sampling else 1
    return max(spec.train.steps * spec.train.prompts * rounds, spec.probe.panel)


def write(problems: Problems, paths: Paths) -> None:
    """Write both files, and what they were made of, unless an earlier attempt did.

    Raises:
        ConfigError: the data cannot be read.
    """
    if paths.train.exists() and paths.held_out.exists():
        return
    spec, count = problems.spec, stream_length(problems.spec)
    name = spec.task.data if spec.task.name == "math" else spec.task.name
    stream = (
        problem for start in range(0, count, ROWS) for problem in problems.training(start, min(ROWS, count - start))
    )
    if problems.loaded:
        write_atomic(paths.run / SOURCES, json.dumps(problems.sources(), indent=2))
    _write(paths.train, _rows(spec, "train", {name: stream}))
    _write(paths.held_out, _rows(spec, "held_out", problems.held_out()))


def fits(spec: RunSpec, folder: Path) -> Fits:
    """Whether a prompt, as the model in `folder` gets it, has at most `train.max_prompt` tokens."""
    if spec.task.name == "arithmetic":
        # All its prompts have the same length, which the settings were held against.
        return lambda _: True
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)

    def answer(text: str) -> bool:
        turns = [{"role": "user", "content": text}]
        if tokenizer.chat_template is None:
            tokens = tokenizer(text)["input_ids"]
        else:
            tokens = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        return len(tokens) <= spec.train.max_prompt

    return answer


def whole(name: str, file: Path | None) -> Loaded:
    """All problems of a benchmark.

    Raises:
        ConfigError: the data cannot be read, or are not as many as its declaration says: an evaluation is done when
            it has that many.
    """
    loaded, size = data.load(name, file), data.get(name).size
    if len(loaded.problems) != size:
        fix = f"mcpo data audit {name if file is None else f'{file} --as {name}'}"
        raise ConfigError(f"{name}: {len(loaded.problems)} problems, published are {size}", fix=fix)
    return loaded


def path(spec: RunSpec) -> Path | None:
    """`task.data_path`, None for the hub."""
    return Path(spec.task.data_path).expanduser() if spec.task.data_path else None


def _rows(spec: RunSpec, split: str, sources: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for source, found in sources.items():
        for index, problem in enumerate(found):
            yield row(spec, source, split, index, problem)


def _write(target: Path, rows: Iterator[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    schema = pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct({"split": text, "index": pa.int64(), "problem": text, "grader": text}),
        }
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    with pq.ParquetWriter(part, schema, compression="zstd") as file:
        while batch := list(islice(rows, ROWS)):
            file.write_table(pa.Table.from_pylist(batch, schema=schema))
    part.rename(target)
