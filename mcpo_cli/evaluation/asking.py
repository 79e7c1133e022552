"""Prompts of a benchmark's problems: in the template of the settings, or as their task asks them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mcpo_cli import model_facts
from mcpo_cli.config.evaluation import Evaluation
from mcpo_cli.data.base import Loaded, Problem, Template, render
from mcpo_cli.errors import bad_model
from mcpo_cli.model_facts import ModelFacts
from mcpo_cli.tasks import ClosedTask, Task
from mcpo_cli.tasks.base import Messages
from mcpo_cli.tokenization import TEXT, prompt_ids

PLACEHOLDER = Problem("{problem}", "")
"""Placeholder for a problem when prompts are shown or compared."""
TASK_TOKENS = 256
"""Maximum tokens of a response to a task's own problems, for a model that was not trained on them. Models that do not
end their responses would fill their window with every sample."""


@dataclass(frozen=True)
class ByTemplate:
    """The prompt is a template around the problem."""

    template: Template
    chat: bool
    """True if the model's chat template wraps it."""
    stops: tuple[str, ...] = ()
    max_tokens: int | None = None

    def messages(self, problem: Problem) -> Messages:
        """The prompt of `problem`, see `tokenization.prompt_ids`."""
        return [{"role": "user" if self.chat else TEXT, "content": render(self.template, problem.text)}]


@dataclass(frozen=True)
class ByTask:
    """The prompt, the ends of responses and their length are those of training."""

    task: Task
    max_tokens: int | None

    @property
    def stops(self) -> tuple[str, ...]:
        return self.task.stops

    def messages(self, problem: Problem) -> Messages:
        return self.task.messages(problem)


Asking = ByTemplate | ByTask
"""A way of asking: its prompts (`messages`), further stop strings, and its maximum of tokens, if lower."""
BARE = ByTemplate("plain", chat=False)
"""The problem text alone, which is the prompt of tasks with their own vocabulary."""


def by_settings(settings: Evaluation, facts: ModelFacts) -> ByTemplate:
    """The prompts of published benchmarks."""
    return ByTemplate(settings.prompt, chat=settings.chat == "auto" and facts.chat_template)


def by_task(task: Task, facts: ModelFacts, max_tokens: int) -> Asking:
    """The prompts of held-out problems of `task`; max_tokens: of a response, unless the task has its own vocabulary.

    Raises:
        ConfigError: the task needs a chat template, and the model has none.
    """
    if isinstance(task, ClosedTask) and task.vocabulary:
        return BARE
    if task.needs_chat_template and not facts.chat_template:
        raise bad_model(
            f"{facts.name}: task={task.name} asks in the chat template, but its tokenizer has none",
            fix="a model with instruction tuning (mcpo model list)",
        )
    return ByTask(task, max_tokens)


@dataclass(frozen=True)
class Benchmark(Loaded):
    """Problems, and their way of asking."""

    asking: Asking = BARE


def of_tasks(benchmarks: Iterable[Loaded]) -> dict[str, ByTask]:
    """The ways of asking that do not follow from the settings, by task."""
    asked = (one.asking for one in benchmarks if isinstance(one, Benchmark))
    return {asking.task.name: asking for asking in asked if isinstance(asking, ByTask)}


def encoded(asking: Asking, problem: Problem, facts: ModelFacts) -> tuple[int, ...]:
    """The prompt's token ids."""
    return tuple(prompt_ids(model_facts.tokenizer(facts), asking.messages(problem)))


def document(asking: Asking) -> dict[str, Any]:
    """Everything about a way of asking that changes a sample, as plain data."""
    messages = [dict(message) for message in asking.messages(PLACEHOLDER)]
    return {"messages": messages, "stops": list(asking.stops), "max_tokens": asking.max_tokens}
