"""The plug-ins and functions of users that decide the result of a run."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from mcpo_cli import data as datasets
from mcpo_cli import grading, methods, plugins, prompt_samplers, tasks
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.grading import functions
from mcpo_cli.plugins import Found, Plugin


def used_plugins(spec: RunSpec) -> dict[str, Plugin]:
    """The plug-ins and functions that decide the result of `spec`, by the name of what each provides (`method NAME`).

    Raises:
        ConfigError: a function's file cannot be read, or has no such function.
    """
    task = spec.task
    uses: list[tuple[str, Found[Any], Collection[str]]] = [
        ("method", methods.registry(), [spec.method.name]),
        ("sampler", prompt_samplers.registry(), [spec.sampler.name]),
        ("task", tasks.registry(), [task.name]),
        ("grader", grading.registry(), dict.fromkeys(map(task.grader_of, task.published or [task.source]))),
        ("dataset", datasets.registry(), task.published),
        ("collection", datasets.collections(), datasets.collections_of(task.published)),
    ]
    by_use = {f"{kind} {name}": of.plugins[name] for kind, of, names in uses for name in names if name in of.plugins}
    return by_use | dict(_functions(spec))


def _functions(spec: RunSpec) -> Iterator[tuple[str, Plugin]]:
    task = spec.task
    graders = dict.fromkeys(map(task.grader_of, task.published or [task.source]))
    uses = (("reward", "train.reward", [spec.train.reward]), ("grader", "task.graded_by", graders))
    for kind, setting, names in uses:
        for name in filter(functions.is_function, names):
            functions.check(setting, name)
            yield f"{kind} {Path(name).name}", plugins.of_file(functions.file_of(name))
