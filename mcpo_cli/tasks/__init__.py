"""The tasks, one file each, in this package or in plug-ins; `task=NAME` chooses one, `task.*` are its options.

>>> from mcpo_cli.tasks import get
>>> get("arithmetic", skills=3).training(seed=0, start=0, count=1)
"""

from functools import cache
from typing import Any

from mcpo_cli import plugins
from mcpo_cli.convert import choose
from mcpo_cli.errors import ConfigError
from mcpo_cli.plugins import Found
from mcpo_cli.tasks.base import ClosedTask, GeneratedTask, Problems, Task

__all__ = ["ClosedTask", "GeneratedTask", "Problems", "Task", "closed", "closed_registry", "get", "registry"]


@cache
def registry() -> Found[type[Task]]:
    """All tasks by name, from this package and plug-ins. Raises ConfigError when two share a name."""
    return plugins.classes("tasks", __name__, Task)


def get(name: str, **options: Any) -> Task:
    """The task `name`; `options` replace its defaults.

    Raises:
        ConfigError: unknown task, unknown option, or an option value out of its range.
    """
    return choose(registry(), "task", name, options, fix="task=arithmetic")


def closed_registry() -> dict[str, type[ClosedTask]]:
    """The tasks for which a model can be built from scratch, by name."""
    return {name: kind for name, kind in registry().items() if issubclass(kind, ClosedTask)}


def closed(task: Task) -> ClosedTask:
    """Returns `task` if a model can be built from scratch for it.

    Raises:
        ConfigError: it does not have its own vocabulary.
    """
    if isinstance(task, ClosedTask) and task.vocabulary:
        return task
    names = ", ".join(closed_registry())
    raise ConfigError(
        f"task={task.name} needs an existing model: one is built from scratch only for {names}",
        fix="model=smollm2-135m, or model.path=FOLDER",
        code="contradiction",
    )
