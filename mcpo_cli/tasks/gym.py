"""A set of reasoning-gym for models built from scratch: text as it is, a character a token, answered at once.

The prompt is the question after as many blanks as make all prompts one length. Demonstrations are the answers that
reasoning-gym gives. A problem is left out if it is too long, or has a character that is not printable ASCII.
"""

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from mcpo_cli.data import gym, is_one
from mcpo_cli.data.base import Problem, held_out
from mcpo_cli.errors import ConfigError
from mcpo_cli.seeds import stream
from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import BLANK, HELD_OUT_RULE, ClosedTask, Limits, from_pool

CHARACTERS = tuple(sign for sign in string.digits + string.ascii_letters + string.punctuation + " \n" if sign != BLANK)


@dataclass(frozen=True)
class Gym(ClosedTask):
    """Problems of one set of reasoning-gym, a character a token."""

    name = "gym"
    grader = gym.GRADER
    one_right_response = False
    judged_apart = True
    held_out_rule = HELD_OUT_RULE
    words = CHARACTERS

    data: str = identity("reasoning_gym:number_sequence")
    """The set: `reasoning_gym:NAME`."""
    config: tuple[str, ...] = identity(())
    """Options of the set: a list of `KEY=VALUE`, each in quotes, under the names that reasoning-gym gives them."""
    draws: int = identity(gym.DRAWS, ge=1, le=100_000)
    """Different questions drawn of the set, or all if there are fewer; one in eight is held out."""
    longest_question: int = identity(32, ge=1)
    """Characters of the longest question; each prompt is as long."""
    longest_answer: int = identity(8, ge=1)
    """Characters of the longest answer."""

    @property
    def title(self) -> str:
        """See `Task`."""
        return f"{self.tier_names[0]} of reasoning-gym, character by character"

    @property
    def tier_names(self) -> tuple[str, ...]:
        """See `ClosedTask`; one, called as the set is."""
        return (self.data.removeprefix(gym.PREFIX),)

    @property
    def prompt_length(self) -> int:
        """Characters of every prompt."""
        return self.longest_question

    @property
    def answer_length(self) -> int:
        """See `ClosedTask`."""
        return self.longest_answer + 1

    def tier_of(self, prompt: str) -> str:
        """See `Task`; there is one."""
        return self.tier_names[0]

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`."""
        if not (is_one(self.data, "train") and gym.role(self.data)):
            yield f"task.data={self.data} is not of the form reasoning_gym:NAME", f"task.data={Gym.data}"
        gym.options(self.config)
        yield from super().contradictions(train)

    def check(self) -> None:
        """Draws the problems, unless they have been; raises ConfigError if there are none."""
        self._problems(held=False)

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`; all problems epoch by epoch."""
        return from_pool(self._problems(held=False), seed, start, count)

    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        """See `ClosedTask`."""
        drawn = random.Random(stream(seed, "warmup", step)).choices(self._problems(held=False), k=count)
        return [Problem(problem.text, gym.answer(problem) or "") for problem in drawn]

    def tiers(self, count: int) -> dict[str, list[Problem]]:
        """See `Problems`. Raises ConfigError if fewer than `count` are held out."""
        problems = self._problems(held=True)
        if len(problems) < count:
            raise ConfigError(
                f"{self.data}: {len(problems)} of the problems that fit are held out, not eval.problems={count}",
                fix=f"task.draws={2 * self.draws}, or eval.problems={len(problems)}",
            )
        return {self.tier_names[0]: problems[:count]}

    def _problems(self, held: bool) -> list[Problem]:
        """The problems that fit and are held out, or that fit and are not, in the order in which they were drawn."""
        fitting = _fitting(self)
        if not fitting:
            limits = f"{self.longest_question} and {self.longest_answer} characters of printable ASCII"
            raise ConfigError(
                f"{self.data}: no question and answer fit into {limits}",
                fix=f"task.longest_question={2 * self.longest_question}",
            )
        return [
            Problem(problem.text.rjust(self.longest_question, BLANK), problem.gold)
            for problem in fitting
            if held_out(problem) == held
        ]


@cache
def _fitting(task: Gym) -> list[Problem]:
    """The problems whose question and answer have no other characters, and not more of them, than the task takes."""
    known = set(CHARACTERS)
    return [
        problem
        for problem in gym.drawn(task.data, task.config, task.draws)
        if len(problem.text) <= task.longest_question
        and 0 < len(said := gym.answer(problem) or "") <= task.longest_answer
        and known.issuperset(problem.text + said)
    ]
