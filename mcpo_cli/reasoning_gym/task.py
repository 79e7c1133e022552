"""A set of reasoning-gym, judged by the set's own verifier: character by character, or in the set's own words.

`task.form=characters` is for models built from scratch: one token per character, answered at once. The prompt is the
question, padded with blanks in front to the length of all prompts. Demonstrations are the answers that reasoning-gym
gives. A problem is left out if it is too long, or has a character that is not printable ASCII.

`task.form=words` is for existing models: the prompt is the question as it is, and only the tokenizer limits its length.
Worked examples are the first problems of the set that are not held out; training leaves these out.
"""

import random
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from mcpo_cli.data.base import Problem, held_out
from mcpo_cli.errors import no_room
from mcpo_cli.reasoning_gym import sets as gym
from mcpo_cli.records import DataSource
from mcpo_cli.seeds import stream
from mcpo_cli.settings import identity, later
from mcpo_cli.tasks.base import BLANK, ClosedTask, Limits, Problems, Tokens
from mcpo_cli.tasks.drawn import HELD_OUT_RULE, from_pool
from mcpo_cli.tasks.text import QUESTION, Example, TextTask, fill_a_batch, fitting

CHARACTERS = tuple(sign for sign in string.digits + string.ascii_letters + string.punctuation + " \n" if sign != BLANK)
EXAMPLES = 8
"""Most worked examples."""
PROMPT_TOKENS, RESPONSE_SHARE = 150, 0.25
"""Mean tokens of a prompt in words, and of a response as a share of train.max_response, assumed for estimates."""


@dataclass(frozen=True)
class Gym(TextTask, ClosedTask):
    """Problems of one set of reasoning-gym."""

    name = "gym"
    grader = gym.GRADER
    one_right_response = False
    judged_apart = True
    held_out_rule = HELD_OUT_RULE
    words = CHARACTERS

    data: str = identity("reasoning_gym:number_sequence")
    """The set: `reasoning_gym:NAME`."""
    form: Literal["characters", "words"] = later("characters")
    """`characters` for models built from scratch, `words` for existing ones: the questions as they are."""
    config: tuple[str, ...] = identity(())
    """Options of the set: a list of `KEY=VALUE`, each in quotes, under the names that reasoning-gym gives them."""
    draws: int = identity(gym.DRAWS, ge=1, le=100_000)
    """Different questions drawn of the set, or all if there are fewer; one in eight is held out."""
    longest_question: int = identity(32, ge=1)
    """Characters of the longest question; each prompt is as long. No limit with `form=words`."""
    longest_answer: int = identity(8, ge=1)
    """Characters of the longest answer; no limit with `form=words`."""

    @property
    def in_words(self) -> bool:
        """True if the task is asked in words, of an existing model."""
        return self.form == "words"

    @property
    def title(self) -> str:
        return f"{self.tier_names[0]} of reasoning-gym{'' if self.in_words else ', character by character'}"

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """See `Task`; empty with `form=words`."""
        return () if self.in_words else super().vocabulary

    @property
    def own_template(self) -> str:
        return f"Question: {QUESTION}\nAnswer:" if self.in_words and self.is_plain else QUESTION

    @property
    def own_stops(self) -> tuple[str, ...]:
        return (self.between, "\nQuestion:") if self.in_words and self.is_plain else ()

    @property
    def most_examples(self) -> int:
        """See `TextTask`; known before the set is drawn."""
        return EXAMPLES if self.in_words else 0

    @property
    def worked(self) -> list[Example]:
        """See `TextTask`; the first problems that are not held out, with the answers that reasoning-gym gives."""
        if not self.in_words:
            return []
        space = " " if self.is_plain else ""
        problems = _split(self, is_held_out=False)[: self.examples]
        return [(problem.text, space + (gym.answer(problem) or "")) for problem in problems]

    @property
    def tier_names(self) -> tuple[str, ...]:
        """See `ClosedTask`; the only tier has the name of the set."""
        return (self.data.removeprefix(gym.PREFIX),)

    @property
    def prompt_length(self) -> int:
        """Characters of every prompt; 0 with `form=words`, where the tokenizer decides."""
        return 0 if self.in_words else self.longest_question

    @property
    def answer_length(self) -> int:
        """See `ClosedTask`; 0 with `form=words`."""
        return 0 if self.in_words else self.longest_answer + 1

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; assumed with `form=words`."""
        if self.in_words:
            return PROMPT_TOKENS * (1 + self.examples), RESPONSE_SHARE * max_response
        return self.prompt_length, self.answer_length

    def question_tokens(self) -> float:
        """See `Task`; assumed with `form=words`."""
        return PROMPT_TOKENS if self.in_words else self.prompt_length

    def tier_of(self, prompt: str) -> str:
        """See `Task`; the only tier."""
        return self.tier_names[0]

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        if gym.role(self.data) != "train":
            yield f"task.data={self.data} is not of the form reasoning_gym:NAME", f"task.data={Gym.data}"
        gym.options(self.config)
        if not self.in_words:
            for option in ("style", "system", "template", "stop"):
                if (value := getattr(self, option)) != getattr(Gym, option):
                    yield f"task.{option}={value} has no effect with task.form=characters", "task.form=words"
        yield from super().contradictions(train)

    def problems(self, train: Limits, tokens: Tokens) -> Problems:
        """See `Task`; with `form=words`, training has the problems whose prompts fit."""
        if self.in_words:
            return Asked(self, train, tokens)
        # All prompts have one length, which `contradictions` compares with the limit.
        fill_a_batch(self.data, len(self._problems(is_held_out=False)), train)
        return self

    def check(self) -> None:
        """Draw the problems unless they are in the cache; raises ConfigError without problems."""
        self._problems(is_held_out=False)

    @property
    def is_here(self) -> bool:
        """See `Task`; false: a process of reasoning-gym draws the problems."""
        return False

    @property
    def repeats(self) -> bool:
        """See `Task`; a set has as many problems as were drawn."""
        return True

    @property
    def distinct(self) -> int:
        """See `Problems`."""
        return len(self._problems(is_held_out=False))

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`; all problems epoch by epoch."""
        return from_pool(self._problems(is_held_out=False), seed, start, count)

    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        problems = random.Random(stream(seed, "warmup", step)).choices(self._problems(is_held_out=False), k=count)
        return [Problem(problem.text, gym.answer(problem) or "") for problem in problems]

    def tiers(self, count: int) -> dict[str, list[Problem]]:
        """See `Problems`. Raises ConfigError if fewer than `count` are held out."""
        problems = self._problems(is_held_out=True)
        if len(problems) < count:
            raise no_room(
                f"{self.data}: {len(problems)} of the problems that fit are held out, not eval.problems={count}",
                fix=f"task.draws={2 * self.draws}, or eval.problems={len(problems)}",
            )
        return {self.tier_names[0]: problems[:count]}

    def _problems(self, is_held_out: bool) -> list[Problem]:
        """The held-out or the training problems that fit, in the order in which they were drawn.

        Worked examples are left out.
        """
        if self.in_words:
            return _split(self, is_held_out)[0 if is_held_out else self.examples :]
        width = self.longest_question
        return [Problem(problem.text.rjust(width, BLANK), problem.gold) for problem in _split(self, is_held_out)]


@dataclass(frozen=True)
class Asked:
    """The problems of one run that asks in words (see `base.Problems`)."""

    task: Gym
    train: Limits
    tokens: Tokens

    @cached_property
    def pool(self) -> Sequence[Problem]:
        """The training problems that fit.

        Raises:
            ConfigError: too few fit to fill one batch.
        """
        return fitting(self.task, self.task.data, self.task._problems(is_held_out=False), self.train, self.tokens)

    @property
    def distinct(self) -> int:
        return len(self.pool)

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`; the pool epoch by epoch."""
        return from_pool(self.pool, seed, start, count)

    def tiers(self, count: int) -> Mapping[str, Sequence[Problem]]:
        return self.task.tiers(count)

    def sources(self) -> Mapping[str, DataSource]:
        """An empty mapping, as with other generated problems."""
        return {}


@cache
def _split(task: Gym, is_held_out: bool) -> list[Problem]:
    """The held-out problems of the task, or its training problems with the worked examples.

    With `form=words` all problems of the set count; with `form=characters`, those whose question and answer are short
    enough and have only characters of the task.
    """
    problems, characters = gym.drawn(task.data, task.config, task.draws), set(CHARACTERS)
    if not task.in_words:
        problems = [
            problem
            for problem in problems
            if len(problem.text) <= task.longest_question
            and 0 < len(answer := gym.answer(problem) or "") <= task.longest_answer
            and characters.issuperset(problem.text + answer)
        ]
    if not problems:
        limits = f"{task.longest_question} and {task.longest_answer} characters of printable ASCII"
        raise no_room(
            f"{task.data}: no question and answer fit into {limits}",
            fix=f"task.longest_question={2 * task.longest_question}",
        )
    return [problem for problem in problems if held_out(problem) == is_held_out]
