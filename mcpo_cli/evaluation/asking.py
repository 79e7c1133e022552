"""Prompts of a benchmark's problems: in the template of the settings, or as their task asks them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpo_cli.config.evaluation import Evaluation
from mcpo_cli.data.base import Loaded, Problem, render
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
class Asking:
    """A way of asking."""

    messages: Callable[[Problem], Messages]
    """The prompt of a problem, see `tokenization.prompt_ids`."""
    stops: tuple[str, ...] = ()
    """Strings that end a response, in addition to the model's own end tokens."""
    max_tokens: int | None = None
    """Most tokens of a response, if fewer than in the settings."""
    task: str = ""
    """The task that asks; empty if the settings do."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the chat template."""


BARE = Asking(lambda problem: [{"role": TEXT, "content": problem.text}])
"""The problem text alone, which is the prompt of tasks with their own vocabulary."""


def in_chat(settings: Evaluation, facts: ModelFacts) -> bool:
    """True if the model's chat template wraps the prompts of published benchmarks."""
    return settings.chat == "auto" and facts.chat_template


def by_settings(settings: Evaluation, facts: ModelFacts) -> Asking:
    """The prompts of published benchmarks: a template around the problem."""
    role = "user" if in_chat(settings, facts) else TEXT
    variables = settings.chat_variables or {}
    return Asking(
        lambda problem: [{"role": role, "content": render(settings.prompt, problem.text)}], variables=variables
    )


def by_task(task: Task, facts: ModelFacts, max_tokens: int) -> Asking:
    """The prompts and ends of responses of training, for held-out problems of `task`.

    max_tokens: most tokens of a response, unless the task has its own vocabulary.

    Raises:
        ConfigError: the task needs a chat template, and the model has none.
    """
    if isinstance(task, ClosedTask) and task.vocabulary:
        return BARE
    if task.needs_chat_template and not facts.chat_template:
        raise bad_model(
            f"{facts.name}: task={task.name} asks in the chat template, but its tokenizer has none",
            fix="a model with instruction tuning (mcpo components list model)",
        )
    return Asking(task.messages, task.stops, max_tokens, task.name, task.template_variables)


@dataclass(frozen=True)
class Benchmark(Loaded):
    """Problems, and their way of asking."""

    asking: Asking = BARE


def of_tasks(benchmarks: Iterable[Benchmark]) -> dict[str, Asking]:
    """The ways of asking that do not follow from the settings, by task."""
    return {benchmark.asking.task: benchmark.asking for benchmark in benchmarks if benchmark.asking.task}


def encoded(asking: Asking, problem: Problem, facts: ModelFacts) -> tuple[int, ...]:
    """The prompt's token ids."""
    return tuple(prompt_ids(facts.tokenizer, asking.messages(problem), asking.variables))


def document(asking: Asking) -> dict[str, Any]:
    """Everything about a way of asking that changes a sample, as plain data."""
    messages = [dict(message) for message in asking.messages(PLACEHOLDER)]
    fields = {"messages": messages, "stops": list(asking.stops), "max_tokens": asking.max_tokens}
    return fields | ({"variables": {**asking.variables}} if asking.variables else {})
