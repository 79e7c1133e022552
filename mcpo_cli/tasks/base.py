"""The contract of a task: its training and held-out problems, and everything else that depends on the task.

A task is a frozen dataclass in a file of this package. Its fields are the options `task.*`, declared as in
`config.schema`. Four base classes do parts of the work, and a task may combine them:

- `GeneratedTask`: the task makes its own problems and has difficulty tiers.
- `DrawnTask`: a generated task that draws each problem at random; streams, pool and held-out tiers follow from that.
- `ClosedTask`: a generated task with its own vocabulary, for which a model can be built from scratch. `RandomTask` is
  both closed and drawn.
- `TextTask` (`text.py`): a task that asks an existing model in its own words.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar, Protocol

from mcpo_cli import data as datasets
from mcpo_cli.data.base import HELD_OUT_SHARE, Problem, held_out
from mcpo_cli.errors import ConfigError
from mcpo_cli.records import DataSource
from mcpo_cli.seeds import stream
from mcpo_cli.settings import identity

EOS, BLANK = "<eos>", "_"
"""The first words of every closed vocabulary: the end of a response, and the padding and unknown word."""
HELD_OUT_RULE = f"a problem is held out if its text hashes to 0 modulo {HELD_OUT_SHARE}, and only then"
Messages = Sequence[Mapping[str, str]]
"""A prompt: `role` and `content` of each message, see `tokenization.prompt_ids`."""
Fits = Callable[[Messages], bool]
"""Tells whether a prompt is short enough to train on."""
PATIENCE = 20_000
"""Draws in a row without a new problem after which `DrawnTask` reports that its options allow too few."""


class Limits(Protocol):
    """The training settings that a task reads; `config.schema.Train` provides them."""

    @property
    def prompts(self) -> int:
        """Prompts of a rollout batch."""
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
    """The training and the held-out problems of a run; the two share no problem."""

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """Problems `start` to `start + count` of the endless training stream of `seed`."""
        ...

    def tiers(self, count: int) -> Mapping[str, Sequence[Problem]]:
        """The held-out problems of each tier, the same for every seed.

        Args:
            count: problems of each generated tier; published tiers are complete.
        """
        ...

    def sources(self) -> Mapping[str, DataSource]:
        """The published data sets that were read, by name."""
        ...


@dataclass(frozen=True)
class Task(ABC):
    """The base class of all tasks. Each file of this package defines one as a subclass with a `name`."""

    name: ClassVar[str]
    """The NAME in `task=NAME`."""
    grader: ClassVar[str]
    """The grader of `mcpo_cli.grading` that judges the answers."""
    reasons: ClassVar[bool] = False
    """Whether responses should reason, so that a bare right answer is suspicious."""
    judged_apart: ClassVar[bool] = True
    """Whether training judges in processes apart, with limits of time and memory (`grading.Pool`).

    A grader that needs no heavy library and always ends can judge in the training process.
    """
    held_out_rule: ClassVar[str] = ""
    """The rule that keeps held-out problems out of training; empty if there is none."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word of prompts and answers; empty if the task needs an existing model."""
        return ()

    @property
    def published(self) -> tuple[str, ...]:
        """The data sets that the task reads; empty if its problems are generated."""
        return ()

    @property
    def distinct_problems(self) -> int:
        """Number of different training problems if the options fix it, else 0."""
        return 0

    @property
    @abstractmethod
    def title(self) -> str:
        """A description of the training problems, for the report."""

    def grader_of(self, source: str) -> str:
        """The grader of the problems of `source`: a held-out tier, or a name of training problems."""
        return self.grader

    @property
    @abstractmethod
    def source(self) -> str:
        """The `data_source` of verl's training rows; held-out rows name their tier there."""

    @abstractmethod
    def problems(self, train: Limits, fits: Fits) -> Problems:
        """The problems of one run.

        Raises:
            ConfigError: the problems cannot be read, or too few fit to fill one batch.
        """

    @abstractmethod
    def tier_sizes(self, count: int) -> dict[str, int]:
        """Number of problems of each tier; `count` is that of generated tiers (`eval.problems`)."""

    def tier_of(self, prompt: str) -> str:
        """The tier whose problems a training prompt is like; empty if there is none, or the task cannot tell."""
        return ""

    @abstractmethod
    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """Mean tokens of a prompt and of a response, used for estimates."""

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end a response, in addition to the model's own end tokens."""
        return ()

    @property
    def needs_chat_template(self) -> bool:
        """Whether prompts need a tokenizer with a chat template."""
        return False

    def turn(self, problem: Problem) -> str:
        """The user's turn for `problem`."""
        return problem.text

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        """The whole prompt of `problem`: `role` and `content` of each message (see `tokenization.prompt_ids`)."""
        return [{"role": "user", "content": self.turn(problem)}]

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """A message and a fixing override for each option that contradicts another option or `train`."""
        yield from ()

    def check(self) -> None:
        """Raises ConfigError for an unknown data set; subclasses that read data also check that it is available."""
        for name in self.published:
            datasets.get(name)


@dataclass(frozen=True)
class GeneratedTask(Task):
    """A task that makes its own problems; it reads no published data set."""

    @property
    def source(self) -> str:
        """See `Task`."""
        return self.name

    @property
    @abstractmethod
    def tier_names(self) -> tuple[str, ...]:
        """The held-out tiers, in the order of the tables."""

    @abstractmethod
    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`."""

    @abstractmethod
    def tiers(self, count: int) -> Mapping[str, Sequence[Problem]]:
        """See `Problems`; one tier for each of `tier_names`."""

    def problems(self, train: Limits, fits: Fits) -> Problems:
        """The task itself: `contradictions` ensures that all prompts fit."""
        return self

    def sources(self) -> Mapping[str, DataSource]:
        """An empty mapping: the problems are generated."""
        return {}

    def tier_sizes(self, count: int) -> dict[str, int]:
        """See `Task`."""
        return dict.fromkeys(self.tier_names, count)


@dataclass(frozen=True)
class DrawnTask(GeneratedTask):
    """A task that draws each problem at random.

    A subclass draws one problem (`draw`, `draw_of_tier`). This class makes streams, pool and tiers of that, and keeps
    held-out problems out of training.
    """

    held_out_rule = HELD_OUT_RULE

    pool: int = identity(0, ge=0, le=8192)
    """Number of different training problems, repeated in each epoch; 0 always draws fresh ones."""

    @abstractmethod
    def draw(self, rng: random.Random) -> Problem:
        """A problem as training has them, held out or not."""

    @abstractmethod
    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """A problem of `tier`, held out or not."""

    def every(self, tier: str) -> Iterator[Problem] | None:
        """All problems of `tier`, held out or not, each once; None if the task cannot enumerate them.

        A tier of an enumerable task has as many problems as exist, if these are fewer than asked for.
        """
        return None

    def tier_stream(self, tier: str) -> str:
        """The seed of the random stream that draws `tier`."""
        return tier

    @property
    def distinct_problems(self) -> int:
        """See `Task`."""
        return self.pool

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`; also checks that the pool fills a batch."""
        yield from super().contradictions(train)
        if 0 < self.pool < train.prompts:
            yield (
                f"task.pool={self.pool} holds fewer prompts than one batch (train.prompts={train.prompts})",
                f"task.pool={train.prompts}  (or 0: fresh prompts)",
            )

    def check(self) -> None:
        """See `Task`; also raises ConfigError if fewer training problems exist than the pool has."""
        super().check()
        self.training(0, 0, 1)

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`; fresh problems, or the pool epoch by epoch.

        Raises:
            ConfigError: fewer training problems exist than `pool`.
        """
        if self.pool:
            rng = random.Random(stream(seed, "pool"))
            pool = _distinct(self._drawn(self.draw, rng, held=False), self.pool, "task.pool", "training problems")
            return from_pool(pool, seed, start, count)
        return [
            next(self._drawn(self.draw, random.Random(stream(seed, "data", i)), held=False))
            for i in range(start, start + count)
        ]

    def tiers(self, count: int) -> dict[str, list[Problem]]:
        """See `Problems`.

        Raises:
            ConfigError: a tier that the task cannot enumerate has fewer than `count` held-out problems.
        """
        return {tier: self._tier(tier, count) for tier in self.tier_names}

    def tier_sizes(self, count: int) -> dict[str, int]:
        """See `Task`; an enumerable tier has at most as many problems as are held out of it."""
        return {tier: count if (held := self._held_out(tier, count)) is None else len(held) for tier in self.tier_names}

    def holds_out(self, problem: Problem) -> bool:
        """Whether `problem` is evaluated and never trained on; its text alone decides."""
        return held_out(problem)

    def _drawn(self, draw: Callable[[random.Random], Problem], rng: random.Random, *, held: bool) -> Iterator[Problem]:
        """Endless problems of `draw`: those that are held out, or those that are not.

        Raises:
            ConfigError: PATIENCE draws in a row had no such problem.
        """
        missed = 0
        while missed < PATIENCE:
            problem = draw(rng)
            if self.holds_out(problem) == held:
                missed = 0
                yield problem
            else:
                missed += 1
        kind = "held-out problems" if held else "training problems"
        raise ConfigError(f"the options of the task allow no {kind}", fix="mcpo help task")

    def _held_out(self, tier: str, count: int) -> list[Problem] | None:
        """The first `count` held-out problems of an enumerable tier, or all if there are fewer; None for another."""
        problems = self.every(tier)
        return None if problems is None else list(islice(filter(self.holds_out, problems), count))

    def _tier(self, tier: str, count: int) -> list[Problem]:
        held = self._held_out(tier, count + 1)
        if held is not None and len(held) <= count:
            return held
        draws = self._drawn(partial(self.draw_of_tier, tier=tier), random.Random(self.tier_stream(tier)), held=True)
        return _distinct(draws, count, "eval.problems", f"held-out problems of {tier}")


@dataclass(frozen=True)
class ClosedTask(GeneratedTask):
    """A task that generates its problems: own vocabulary, one token per word, all prompts of one length.

    Training judges its responses in its own process, so its `grader` needs no heavy library and always ends; one that
    does not is `judged_apart`.
    """

    grader = "exact"
    one_right_response: ClassVar[bool] = True
    """Whether the gold is the only right response, so that its probability is the policy's expected accuracy."""
    judged_apart = False
    words: ClassVar[tuple[str, ...]]
    """The words of prompts and answers, without `EOS` and `BLANK`; with the space among them, each is a character."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """See `Task`."""
        return (EOS, BLANK, *self.words)

    @property
    @abstractmethod
    def prompt_length(self) -> int:
        """Tokens of every prompt."""

    @property
    @abstractmethod
    def answer_length(self) -> int:
        """Tokens of the longest demonstrated answer to a training problem, end token included."""

    @property
    def held_out_answer_length(self) -> int:
        """Tokens that an answer to the hardest held-out problem takes, end token included."""
        return self.answer_length

    @abstractmethod
    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        """The training data of warm-up step `step`: problems whose gold is a whole response to imitate."""

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`."""
        return self.prompt_length, self.answer_length

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """Checks that prompts and right answers fit into `train.max_prompt` and `train.max_response`."""
        yield from super().contradictions(train)
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


@dataclass(frozen=True)
class RandomTask(DrawnTask, ClosedTask):
    """A closed task that draws each problem at random, from a space much larger than what a run sees of it.

    A subclass says how one problem is drawn, and its difficulty; this class makes demonstrations and tiers of that.
    """

    @property
    @abstractmethod
    def tier_ranges(self) -> Mapping[str, tuple[int, int]]:
        """Least and most difficulty of each held-out tier."""

    @abstractmethod
    def draw_demonstration(self, rng: random.Random) -> Problem:
        """A problem of the warm-up, held out or not, with a whole response to imitate as its gold."""

    def difficulty(self, prompt: str) -> int | None:
        """What `tier_ranges` count, of a prompt; None if the task cannot tell."""
        return None

    def tier_of(self, prompt: str) -> str:
        """See `Task`."""
        found = self.difficulty(prompt)
        within = (tier for tier, (low, high) in self.tier_ranges.items() if found is not None and low <= found <= high)
        return next(within, "")

    @property
    def tier_names(self) -> tuple[str, ...]:
        """See `GeneratedTask`."""
        return tuple(self.tier_ranges)

    def tier_stream(self, tier: str) -> str:
        """See `DrawnTask`; its range is part of it."""
        low, high = self.tier_ranges[tier]
        return f"{tier}:{low}:{high}"

    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        """See `ClosedTask`."""
        rng = random.Random(stream(seed, "warmup", step))
        return list(islice(self._drawn(self.draw_demonstration, rng, held=False), count))


def _distinct(problems: Iterator[Problem], count: int, option: str, kind: str) -> list[Problem]:
    """`count` problems with different texts.

    Raises:
        ConfigError: PATIENCE problems in a row were known already; it names the `option` that asks for `count`.
    """
    distinct: dict[str, Problem] = {}
    repeated = 0
    while len(distinct) < count:
        problem = next(problems)
        repeated = repeated + 1 if problem.text in distinct else 0
        distinct[problem.text] = problem
        if repeated == PATIENCE:
            raise ConfigError(
                f"{option}={count}: the options of the task allow only {len(distinct)} {kind}",
                fix=f"{option}={len(distinct)}",
            )
    return list(distinct.values())


def ordered(least: str, low: int, most: str, high: int) -> Iterator[tuple[str, str]]:
    """A contradiction if the option `task.<least>` is larger than `task.<most>`."""
    if low > high:
        yield f"task.{least}={low} is larger than task.{most}={high}", f"task.{least}={high}"


def from_pool(pool: Sequence[Problem], seed: int, start: int, count: int) -> list[Problem]:
    """Problems `start` to `start + count` of an endless stream over `pool`, reshuffled in each epoch."""
    epochs = {i // len(pool) for i in range(start, start + count)}
    order = {epoch: random.Random(stream(seed, "data", epoch)).sample(pool, len(pool)) for epoch in epochs}
    return [order[i // len(pool)][i % len(pool)] for i in range(start, start + count)]
