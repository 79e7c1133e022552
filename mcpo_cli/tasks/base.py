"""The contract of a task: its training and held-out problems, and everything else that depends on the task.

A task is a frozen dataclass in a file of this package. Its fields are the options `task.*`, declared as in
`config.schema`. Four base classes do parts of the work, and a task may combine them:

- `GeneratedTask`: the task makes its own problems and has difficulty tiers.
- `DrawnTask`: a generated task that draws each problem at random; streams, pool and held-out tiers follow from that.
- `ClosedTask`: a generated task with its own vocabulary, for which a model can be built from scratch. `RandomTask` is
  both closed and drawn.
- `TextTask` (`text.py`): a task that asks an existing model in its own words.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from mcpo_cli import data as datasets
from mcpo_cli.data.base import Problem
from mcpo_cli.records import DataSource

EOS, BLANK = "<eos>", "_"
"""The first words of every closed vocabulary: the end of a response, and the padding and unknown word."""
Messages = Sequence[Mapping[str, str]]
"""A prompt: `role` and `content` of each message, see `tokenization.prompt_ids`."""
Tokens = Callable[[Messages], int]
"""Counts the tokens of a prompt."""


class Limits(Protocol):
    """The training settings that a task reads; `config.schema.Train` provides them."""

    @property
    def prompts(self) -> int:
        """Prompts of a rollout batch."""

    @property
    def max_prompt(self) -> int:
        """Tokens of the longest prompt."""

    @property
    def max_response(self) -> int:
        """Tokens of the longest response."""


class Problems(Protocol):
    """The training and the held-out problems of a run; the two share no problem."""

    @property
    def distinct(self) -> int:
        """Number of different training problems, repeated in epochs; 0 if the stream always has fresh ones."""

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """Problems `start` to `start + count` of the endless training stream of `seed`."""

    def tiers(self, count: int) -> Mapping[str, Sequence[Problem]]:
        """The held-out problems of each tier, the same for every seed.

        Args:
            count: problems of each generated tier; published tiers are complete.
        """

    def sources(self) -> Mapping[str, DataSource]:
        """The published data sets that were read, by name."""


@dataclass(frozen=True)
class Task(ABC):
    """The base class of all tasks. Each file of this package defines one as a subclass with a `name`."""

    name: ClassVar[str]
    """The NAME in `task=NAME`."""
    grader: ClassVar[str]
    """The grader of `mcpo_cli.grading` that judges the answers."""
    reasons: ClassVar[bool] = False
    """True if responses should reason, so that a bare correct answer is suspicious."""
    judged_apart: ClassVar[bool] = True
    """True if training judges in separate processes, with limits of time and memory (`grading.Pool`).

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
    def is_here(self) -> bool:
        """True if its problems are available at once: without network, and without minutes of work."""
        return True

    @property
    def distinct_problems(self) -> int:
        """Number of different training problems if the options fix it, otherwise 0."""
        return 0

    @property
    def repeats(self) -> bool:
        """True if training problems come again in each epoch."""
        return True

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
    def problems(self, train: Limits, tokens: Tokens) -> Problems:
        """The problems of one run, whose prompts have at most `train.max_prompt` tokens.

        Raises:
            ConfigError: the problems cannot be read, or too few fit to fill one batch.
        """

    @abstractmethod
    def tier_sizes(self, count: int) -> dict[str, int]:
        """Number of problems of each tier; `count` is the number for generated tiers (`eval.problems`)."""

    def tier_of(self, prompt: str) -> str:
        """The tier whose problems resemble a training prompt; empty if there is none or the task cannot tell."""
        return ""

    @abstractmethod
    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """Mean tokens of a prompt and of a response, used for estimates."""

    def question_tokens(self) -> float:
        """Mean tokens of a prompt without the beginning that all prompts share, such as worked examples."""
        return self.expected_tokens(1)[0]

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end a response, in addition to the model's own end tokens."""
        return ()

    @property
    def template_variables(self) -> Mapping[str, Any]:
        """Variables of the chat template."""
        return {}

    @property
    def needs_chat_template(self) -> bool:
        """True if prompts need a tokenizer with a chat template."""
        return False

    def turn(self, problem: Problem) -> str:
        """The user's turn for `problem`."""
        return problem.text

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        """The whole prompt of `problem`: `role` and `content` of each message (see `tokenization.prompt_ids`)."""
        return [{"role": "user", "content": self.turn(problem)}]

    def solution(self, problem: Problem) -> str:
        """A correct answer to `problem`, by which `mcpo components check task` tests the grader.

        It is the gold, unless the gold is a condition that several answers meet.
        """
        return problem.gold

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """A message and a fixing override for each option that contradicts another option or `train`."""
        yield from ()

    def cautions(self) -> Iterator[str]:
        """Warnings about problems that are on this machine, before a run uses them."""
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
        return self.name

    @property
    def repeats(self) -> bool:
        """See `Task`; a task that generates its problems draws fresh ones, unless its options fix their number."""
        return self.distinct_problems > 0

    @property
    def distinct(self) -> int:
        """See `Problems`."""
        return self.distinct_problems

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

    def problems(self, train: Limits, tokens: Tokens) -> Problems:
        """The task itself: `contradictions` ensures that all prompts fit."""
        return self

    def sources(self) -> Mapping[str, DataSource]:
        """An empty mapping: the problems are generated."""
        return {}

    def tier_sizes(self, count: int) -> dict[str, int]:
        return dict.fromkeys(self.tier_names, count)


@dataclass(frozen=True)
class ClosedTask(GeneratedTask):
    """A task that generates its problems: own vocabulary, one token per word, all prompts of one length.

    Training judges its responses in its own process, so its `grader` needs no heavy library and always ends; a grader
    that does not is `judged_apart`.
    """

    grader = "exact"
    one_right_response: ClassVar[bool] = True
    """True if the gold is the only correct response, so that its probability is the policy's expected accuracy."""
    judged_apart = False
    words: ClassVar[tuple[str, ...]]
    """The words of prompts and answers, without `EOS` and `BLANK`; if they include the space, each is a character."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
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
        return self.prompt_length, self.answer_length

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """Checks that prompts and correct answers fit into `train.max_prompt` and `train.max_response`."""
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
