r"""Tasks that ask an existing model in its own words, and the settings of how they ask.

A prompt has up to three parts: a system turn, worked examples, and the question inside a template. In the style `chat`
they are turns of the tokenizer's chat template. In the style `plain` they are one text without a chat template, and a
stop string ends the response, because a base model rarely ends it itself. `auto` makes the same turns as `chat`; a
tokenizer without a chat template gets them as paragraphs.

In `template`, `system` and `stop`, the two characters `\n` are a line break and `\\` is a backslash: a real line break
is hard to type in a shell.
"""

import math
import random
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, ClassVar, Literal

from mcpo_cli.chat_template import RESERVED
from mcpo_cli.data.base import HELD_OUT_SHARE, Problem
from mcpo_cli.errors import no_room
from mcpo_cli.settings import identity, later
from mcpo_cli.tasks.base import Limits, Problems, Task, Tokens
from mcpo_cli.tasks.drawn import DrawnTask
from mcpo_cli.tokenization import TEXT

Style = Literal["auto", "chat", "plain"]
Example = tuple[str, str]
"""A question and a response to it."""
QUESTION = "{question}"
TURN_TOKENS = 8
"""Tokens that a chat template adds to each turn, assumed for estimates."""
SAMPLE = 32
"""Training problems whose prompts `DrawnTextTask` measures before it trains."""


@dataclass(frozen=True)
class TextTask(Task):
    """A task whose prompts are text for an existing model."""

    between: ClassVar[str] = "\n\n"
    """Ends each worked example in the style `plain`."""
    characters: ClassVar[float] = 4.0
    """Mean characters of a token of a prompt, assumed for estimates."""
    response_characters: ClassVar[float] = 4.0
    """Mean characters of a token of a response, assumed for estimates."""

    style: Style = later("auto")
    """Form of a prompt: turns of a chat template (`chat`), text without one (`plain`), or turns of a chat template
    where the tokenizer has one (`auto`)."""
    system: str = later("")
    """The system turn; empty leaves it out, and a chat template may then add its own."""
    examples: int = later(0, ge=0)
    """Number of worked examples before the question."""
    template: str = later("")
    """Text around each question, with `{question}` in its place; empty takes the task's own. `\\n` is a line break."""
    chat_variables: Mapping[str, Any] | None = later(None)
    """Variables of the model's chat template, such as `{enable_thinking: false}`; null sets none."""
    stop: tuple[str, ...] | None = later(None)
    """Strings that end a response besides the model's end tokens; null takes the task's own. `\\n` is a line break."""

    @property
    def is_plain(self) -> bool:
        """True if prompts are text without a chat template."""
        return self.style == "plain"

    @property
    def needs_chat_template(self) -> bool:
        return self.style == "chat"

    @property
    def template_variables(self) -> Mapping[str, Any]:
        return self.chat_variables or {}

    @property
    def own_template(self) -> str:
        """The template where `template` is empty."""
        return QUESTION

    @property
    def own_stops(self) -> tuple[str, ...]:
        """The stop strings where `stop` is null."""
        return (self.between,) if self.is_plain else ()

    @property
    def worked(self) -> Sequence[Example]:
        """All worked examples; a prompt has the first `examples` of them."""
        return ()

    @property
    def most_examples(self) -> int:
        """Number of available worked examples."""
        return len(self.worked)

    @property
    def stops(self) -> tuple[str, ...]:
        return self.own_stops if self.stop is None else tuple(map(unescaped, self.stop))

    def ask(self, question: str) -> str:
        """`question` inside the template."""
        return (unescaped(self.template) or self.own_template).replace(QUESTION, question)

    def turn(self, problem: Problem) -> str:
        return self.ask(problem.text)

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        examples = self.worked[: self.examples]
        if self.is_plain:
            before = "".join(self.ask(question) + response + self.between for question, response in examples)
            return [{"role": TEXT, "content": before + self.turn(problem)}]
        turns = [("system", unescaped(self.system))] if self.system else []
        for question, response in examples:
            turns += [("user", self.ask(question)), ("assistant", response)]
        turns.append(("user", self.turn(problem)))
        return [{"role": role, "content": content} for role, content in turns]

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; estimated from the worked examples."""
        messages = self.messages(Problem(self.worked[0][0], ""))
        prompt = sum(len(message["content"]) for message in messages) / self.characters
        turns = 0 if self.is_plain else TURN_TOKENS * (len(messages) + 1)
        response = fmean(len(response) for _, response in self.worked) / self.response_characters
        return round(prompt) + turns, min(max_response, response + 1)

    def question_tokens(self) -> float:
        """See `Task`; estimated from the worked examples."""
        return fmean(len(self.ask(question)) for question, _ in self.worked) / self.characters

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if self.is_plain and self.system:
            yield (
                "task.system has no effect with task.style=plain: text without a chat template has no system turn",
                "task.style=chat, or task.system=''",
            )
        if self.is_plain and self.chat_variables:
            yield (
                "task.chat_variables has no effect with task.style=plain: only a chat template has variables",
                "task.style=chat, or task.chat_variables=null",
            )
        if clashes := [name for name in self.template_variables if name in RESERVED]:
            yield f"task.chat_variables: every prompt has its own {clashes[0]}", f"leave out {clashes[0]}"
        if self.template and QUESTION not in self.template:
            yield (
                f"task.template='{self.template}' has no {QUESTION}: every prompt would be the same",
                # The outer quotes are for the shell, the inner ones for Hydra, whose grammar has braces.
                f"'task.template=\"{self.template} {QUESTION}\"'",
            )
        if self.stop is not None and not all(self.stop):
            strings = ",".join(f"'{string}'" for string in self.stop if string)
            yield "task.stop contains an empty string, which would end every response at once", f"task.stop=[{strings}]"
        if self.examples > self.most_examples:
            yield (
                f"task.examples={self.examples}: task={self.name} has {self.most_examples} worked examples",
                f"task.examples={self.most_examples}",
            )


@dataclass(frozen=True)
class DrawnTextTask(TextTask, DrawnTask):
    """A task that draws its problems and asks an existing model; each tier is a kind of problem with a share."""

    judged_apart = False

    shares: tuple[float, ...] = identity(())
    """Relative frequency of each tier in training, in the order of the tiers; empty takes all equally often."""

    @abstractmethod
    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """See `DrawnTask`; never a worked example."""

    def draw(self, rng: random.Random) -> Problem:
        """See `DrawnTask`; the tier is drawn first, so that held-out problems do not change the shares."""
        (tier,) = rng.choices(self.tier_names, self.shares or None)
        return next(self._drawn(partial(self.draw_of_tier, tier=tier), rng, held=False))

    def holds_out(self, problem: Problem) -> bool:
        """See `DrawnTask`. By SHA-256: CRC-32 maps short texts that differ in one digit to few residues."""
        return problem.number % HELD_OUT_SHARE == 0

    def problems(self, train: Limits, tokens: Tokens) -> Problems:
        """See `Task`.

        Raises:
            ConfigError: prompts are longer than `train.max_prompt`.
        """
        longest = max(tokens(self.messages(problem)) for problem in self.training(0, 0, SAMPLE))
        if longest > train.max_prompt:
            raise no_room(
                f"train.max_prompt={train.max_prompt} cannot hold the prompts of task={self.name}, of up to {longest} "
                "tokens",
                fix=f"train.max_prompt={longest}" + (", or fewer task.examples" if self.examples else ""),
            )
        return self

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        longest = max(len(response) for _, response in self.worked)
        if (tokens := math.ceil(longest / self.characters) + 1) > train.max_response:
            yield (
                f"train.max_response={train.max_response} cannot hold the longest worked example of task={self.name}, "
                f"about {tokens} tokens",
                f"train.max_response={2 * tokens}",
            )
        shares, values = list(self.shares), ",".join("1" for _ in self.tier_names)
        if shares and len(shares) != len(self.tier_names):
            yield (
                f"task.shares={shares} has {len(shares)} values for {len(self.tier_names)} tiers: "
                f"{', '.join(self.tier_names)}",
                f"task.shares=[{values}]",
            )
        if shares and not (min(shares) >= 0 < max(shares)):
            yield f"task.shares={shares}: no share may be negative, and one must be positive", f"task.shares=[{values}]"


def fill_a_batch(source: str, count: int, train: Limits, left_out: str = "") -> None:
    """Check that `count` training problems of `source` fill a batch; left_out: see `fitting`.

    Raises:
        ConfigError: they do not.
    """
    if count < train.prompts:
        fewer = f"train.prompts={count} train.mini_batch={count}, or more problems"
        raise no_room(
            f"{source} has {count} training problems{left_out and f' (left out: {left_out})'}; "
            f"a batch has {train.prompts}",
            fix=fewer if count else "other benchmarks, or more problems",
        )


def fitting(
    task: TextTask, source: str, problems: Sequence[Problem], train: Limits, tokens: Tokens, left_out: str = ""
) -> list[Problem]:
    """The training `problems` of `source` whose prompts fit.

    left_out: which problems of `source` are left out of `problems`, and why.

    Raises:
        ConfigError: too few problems fit to fill one batch.
    """
    fill_a_batch(source, len(problems), train, left_out)
    lengths = [tokens(task.messages(problem)) for problem in problems]
    pool = [problem for problem, length in zip(problems, lengths, strict=True) if length <= train.max_prompt]
    if len(pool) < train.prompts:
        limit, all_of_them = sorted(lengths)[train.prompts - 1], max(lengths)
        raise no_room(
            f"{source}: {len(pool)} of {len(problems)} problems fit into train.max_prompt={train.max_prompt} tokens; "
            f"a batch has {train.prompts}",
            fix=f"train.max_prompt={all_of_them}"
            + (f"  (for all problems; {limit} is enough for a batch)" if limit < all_of_them else ""),
        )
    return pool


def unescaped(text: str) -> str:
    r"""`text` with a line break for each `\n` and a backslash for each `\\`."""
    return re.sub(r"\\([n\\])", lambda escape: "\n" if escape[1] == "n" else "\\", text)
