"""The paper's task: existing language models solve published math problems with gold answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from mcpo_cli import data as datasets
from mcpo_cli.data.base import Loaded, Problem
from mcpo_cli.data.prompt import render
from mcpo_cli.errors import ConfigError, nearest
from mcpo_cli.records import DataSource
from mcpo_cli.settings import identity, runtime
from mcpo_cli.tasks.base import Fits, Limits, Task, from_pool

PROMPT_TOKENS = 200
"""Mean tokens of a prompt with its template, assumed for estimates."""
RESPONSE_SHARE = 0.25
"""Mean response length as a share of train.max_response, assumed for estimates."""


@dataclass(frozen=True)
class Math(Task):
    """Published data sets (`mcpo data list`)."""

    name = "math"
    grader = "math_verify"
    reasons = True

    data: str = identity("dapo_math_17k")
    """The training set."""
    benchmarks: tuple[str, ...] = identity(("aime24", "aime25", "amc23"))
    """The held-out sets; each is a tier and evaluated whole."""
    prompt: Literal["dapo", "boxed", "plain"] = identity("dapo")
    """The template around a problem."""
    data_path: str = runtime("")
    """A file, or a folder with one file per data set, `<name>.jsonl` or `.parquet`; empty loads from the hub."""

    @property
    def published(self) -> tuple[str, ...]:
        """See `Task`."""
        return self.data, *self.benchmarks

    @property
    def title(self) -> str:
        """See `Task`."""
        return datasets.get(self.data).title

    @property
    def source(self) -> str:
        """See `Task`."""
        return self.data

    @property
    def file(self) -> Path | None:
        """`data_path` as a path; None means the hub."""
        return Path(self.data_path).expanduser() if self.data_path else None

    def grader_of(self, source: str) -> str:
        """See `Task`; what the data set declares. Any other name is of problems of the training set."""
        return datasets.get(source if source in self.benchmarks else self.data).grader

    def problems(self, train: Limits, fits: Fits) -> "Published":
        """See `Task`; the files are read on first use."""
        return Published(self, train, fits)

    def tier_sizes(self, count: int) -> dict[str, int]:
        """See `Task`; the sizes as published."""
        return {name: datasets.get(name).size or 0 for name in self.benchmarks}

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; assumed, not measured."""
        return PROMPT_TOKENS, RESPONSE_SHARE * max_response

    def turn(self, problem: Problem) -> str:
        """See `Task`."""
        return render(self.prompt, problem.text)

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`."""
        sets = datasets.names("train")
        if not datasets.is_one(self.data, "train"):
            yield f"task.data={self.data} is not a training set: {nearest(self.data, sets)}", f"task.data={sets[0]}"
        known = datasets.names("benchmark")
        for name in self.benchmarks:
            if not datasets.is_one(name, "benchmark"):
                yield f"task.benchmarks: '{name}' is not a benchmark: {nearest(name, known)}", "mcpo data list"
        if len(set(self.benchmarks)) < max(1, len(self.benchmarks)):
            problem = "is empty" if not self.benchmarks else "repeats a benchmark"
            yield f"task.benchmarks={list(self.benchmarks)} {problem}", "task.benchmarks=[aime24,aime25,amc23]"

    def check(self) -> None:
        """Checks that the training file is available and that the benchmarks are readable and complete."""
        datasets.fetch(datasets.get(self.data), self.file)
        for name in self.benchmarks:
            whole(name, self.file)


@dataclass(frozen=True)
class Published:
    """The problems of one run (see `base.Problems`); each file is read once."""

    task: Math
    train: Limits
    fits: Fits

    @cached_property
    def loaded(self) -> dict[str, Loaded]:
        """The data sets by name: the training set, then the benchmarks.

        Raises:
            ConfigError: a data set cannot be read, or a benchmark is not complete.
        """
        task, file = self.task, self.task.file
        return {task.data: datasets.load(task.data, file), **{name: whole(name, file) for name in task.benchmarks}}

    @cached_property
    def pool(self) -> Sequence[Problem]:
        """The training problems that fit, by id.

        Raises:
            ConfigError: the data cannot be read, or too few problems fit to fill one batch.
        """
        task, train = self.task, self.train
        every = self.loaded[task.data].problems
        pool = [problem for problem in every if self.fits(task.messages(problem))]
        if len(pool) < train.prompts:
            raise ConfigError(
                f"{task.data}: {len(pool)} of {len(every)} problems fit into train.max_prompt={train.max_prompt} "
                f"tokens; a batch has {train.prompts}",
                fix=f"train.max_prompt={2 * train.max_prompt}",
            )
        return pool

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`; the pool epoch by epoch."""
        return from_pool(self.pool, seed, start, count)

    def tiers(self, count: int) -> dict[str, Sequence[Problem]]:
        """See `Problems`."""
        return {name: self.loaded[name].problems for name in self.task.benchmarks}

    def sources(self) -> dict[str, DataSource]:
        """See `Problems`."""
        left_out = {self.task.data: len(self.loaded[self.task.data].problems) - len(self.pool)}
        return {
            name: DataSource(
                digest=loaded.digest,
                source=loaded.source,
                problems=len(loaded.problems),
                left_out=left_out.get(name, 0),
            )
            for name, loaded in self.loaded.items()
        }


def whole(name: str, file: Path | None) -> Loaded:
    """All problems of a benchmark.

    Raises:
        ConfigError: the data cannot be read, or the number of problems is not the declared one, which an evaluation
            needs to be complete.
    """
    loaded, size = datasets.load(name, file), datasets.get(name).size
    if len(loaded.problems) != size:
        fix = f"mcpo data audit {name if file is None else f'{file} --as {name}'}"
        raise ConfigError(f"{name}: {len(loaded.problems)} problems instead of the published {size}", fix=fix)
    return loaded
