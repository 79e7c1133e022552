"""The contract of a task: what it trains and is evaluated on, and whatever else depends on which task it is.

A task is a frozen dataclass in a file of this package. Its fields are the options `task.*`, marked as those of
`config.schema` are. A task with a vocabulary of its own derives from `ClosedTask`: a model is built from scratch for
it, and the local engine trains it. Any other needs a model that exists (backend=verl).
"""

import random
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from mcpo_cli import data as datasets
from mcpo_cli.data.base import Problem
from mcpo_cli.records import DataSource
from mcpo_cli.seeds import stream

EOS, BLANK = "<eos>", "_"
"""The first words of every closed vocabulary: the end of a response, and what stands for no word or an unknown one."""
HELD_OUT_SHARE = 8
"""One generated problem in this many, by a hash of its text, is never trained on."""
Fits = Callable[[str], bool]
"""Whether a prompt, the text of the user's turn, is short enough to train on."""


class Limits(Protocol):
    """The settings of training that a task is held against: `config.schema.Train`."""

    @property
    def prompts(self) -> int:
        """Prompts of a batch."""
        ...

    @property
    def max_prompt(self) -> int:
        """Tokens of the longest prompt."""
        ...

    @property
    def max_response(self) -> int:
        """Tokens of the longest response."""
        ...


class Problems(Protocol):
    """What a run trains and is evaluated on: two sources that share no problem."""

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """Problems `start` to `start + count` of the endless training stream of `seed`."""
        ...

    def tiers(self, count: int) -> Mapping[str, Sequence[Problem]]:
        """The held-out problems of each tier, the same for every seed.

        Args:
            count: problems of a tier that is generated; a published one comes whole.
        """
        ...

    def sources(self) -> Mapping[str, DataSource]:
        """The published data sets that were read, by name."""
        ...


@dataclass(frozen=True)
class Task(ABC):
    """What every task says of itself. A file of this package with a subclass that has a `name` is a task."""

    name: ClassVar[str]
    """`task=NAME` chooses it."""
    grader: ClassVar[str]
    """The grader of `mcpo_cli.grading` that judges its answers."""
    reasons: ClassVar[bool] = False
    """Whether a right answer without reasoning is suspicious."""
    held_out_rule: ClassVar[str] = ""
    """Why no held-out problem can be a training problem; empty where nothing rules that out."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word of its prompts and answers; empty where only a model that exists can read them."""
        return ()

    @property
    def published(self) -> tuple[str, ...]:
        """The data sets that it reads; none where its problems are generated."""
        return ()

    @property
    def distinct_problems(self) -> int:
        """How many training problems differ, where the options say so; 0 otherwise."""
        return 0

    @property
    @abstractmethod
    def title(self) -> str:
        """What is trained on, for the report."""

    @property
    @abstractmethod
    def source(self) -> str:
        """What verl's training rows bear as their `data_source`; held-out rows bear their tier."""

    @abstractmethod
    def problems(self, train: Limits, fits: Fits) -> Problems:
        """The problems of one run.

        Raises:
            ConfigError: they cannot be read, or fewer fit than one batch has.
        """

    @abstractmethod
    def tier_sizes(self, count: int) -> dict[str, int]:
        """Problems of each tier. count: of a tier that is generated (`eval.problems`)."""

    @abstractmethod
    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """Mean tokens of a prompt and of a response, for estimates."""

    def turn(self, problem: Problem) -> str:
        """The user's turn for `problem`."""
        return problem.text

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """A message and an override for each option that contradicts another, or `train`."""
        yield from ()

    def check(self) -> None:
        """Raises ConfigError where a data set is unknown; a task that reads some also looks whether they can be had."""
        for name in self.published:
            datasets.get(name)


@dataclass(frozen=True)
class ClosedTask(Task):
    """A task that generates its problems in words of its own, one token a word, with prompts of one length."""

    grader = "exact"
    words: ClassVar[tuple[str, ...]]
    """The words of prompts and answers but `EOS` and `BLANK`."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """See `Task`."""
        return (EOS, BLANK, *self.words)

    @property
    def source(self) -> str:
        """See `Task`."""
        return self.name

    @property
    @abstractmethod
    def tier_names(self) -> tuple[str, ...]:
        """The held-out tiers, in the order in which tables show them."""

    @property
    @abstractmethod
    def prompt_length(self) -> int:
        """Tokens of every prompt."""

    @property
    @abstractmethod
    def answer_length(self) -> int:
        """Tokens of the longest right answer to a training problem, the end token among them."""

    @property
    def held_out_answer_length(self) -> int:
        """The same of the held-out problems."""
        return self.answer_length

    @abstractmethod
    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`."""

    @abstractmethod
    def tiers(self, count: int) -> Mapping[str, Sequence[Problem]]:
        """See `Problems`; a tier each of `tier_names`."""

    @abstractmethod
    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        """The problems whose gold answers warm-up step `step` learns from."""

    def problems(self, train: Limits, fits: Fits) -> Problems:
        """The task itself: all its prompts fit, as `contradictions` sees to that."""
        return self

    def sources(self) -> Mapping[str, DataSource]:
        """None: its problems are generated."""
        return {}

    def tier_sizes(self, count: int) -> dict[str, int]:
        """See `Task`."""
        return dict.fromkeys(self.tier_names, count)

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`."""
        return self.prompt_length, self.answer_length

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """Prompts and right answers within `train.max_prompt` and `train.max_response`."""
        answer = max(self.answer_length, self.held_out_answer_length)
        if train.max_response < answer:
            yield (
                f"train.max_response={train.max_response} cannot hold an answer of {answer} tokens",
                f"train.max_response={answer}",
            )
        if train.max_prompt < self.prompt_length:
            yield (
                f"train.max_prompt={train.max_prompt} cannot hold a prompt of {self.prompt_length} tokens",
                f"train.max_prompt={self.prompt_length}",
            )


def held_out(problem: Problem) -> bool:
    """Whether a generated problem belongs to evaluation: decided by its text alone, so no list has to agree."""
    return zlib.crc32(problem.text.encode()) % HELD_OUT_SHARE == 0


def from_pool(pool: Sequence[Problem], seed: int, start: int, count: int) -> list[Problem]:
    """Problems `start` to `start + count` of an endless stream over `pool`, each epoch in an order of its own."""
    epochs = {i // len(pool) for i in range(start, start + count)}
    order = {epoch: random.Random(stream(seed, "data", epoch)).sample(pool, len(pool)) for epoch in epochs}
    return [order[i // len(pool)][i % len(pool)] for i in range(start, start + count)]


def answer(response: str) -> str | None:
    """What a response to a closed task answers: its last word; None of an empty one."""
    words = response.removesuffix(EOS).split()
    return words[-1] if words else None


def correct(response: str, problem: Problem) -> bool:
    """Whether the whole response equals the gold answer; white space between tokens does not count."""
    return response.split() == problem.gold.split()
