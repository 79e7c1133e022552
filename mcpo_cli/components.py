"""The kinds of components that mcpo finds by name, built in or of plug-ins: one table, which every list of names reads.

`mcpo components`, completion in the shell and `mcpo doctor` take the kinds from `KINDS`. A registry is imported when it
is asked for, because completion must not wait for the registries of other kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcpo_cli import settings
from mcpo_cli.errors import ConfigError, mend, nearest

if TYPE_CHECKING:
    from mcpo_cli.testing import CheckOutcome

Facts = dict[str, Any]
"""The columns of a component in a list, besides its name."""


@dataclass(frozen=True)
class Kind:
    """A kind of components."""

    about: str
    registry: Callable[[], Mapping[str, Any]]
    """Every component of the kind by name."""
    facts: Callable[[Any], Facts]
    """The columns of a component, from its entry in the registry."""
    text: Callable[[Any], str] = lambda entry: ""
    """Its description."""
    check: "Callable[[Any, Sequence[str]], list[CheckOutcome]] | None" = None
    """Tests a component with these overrides of options against the contract of its kind."""


def kind(name: str) -> Kind:
    """The kind `name`. Raises ConfigError for an unknown one."""
    if name not in KINDS:
        raise ConfigError(
            f"unknown kind of components '{name}': {nearest(name, KINDS)}",
            fix=mend("mcpo components list {}", name, KINDS, "mcpo components list"),
            code="unknown_name",
        )
    return KINDS[name]


def find(kind_name: str, name: str, verb: str = "show") -> Any:
    """The entry `name` of a kind's registry. verb: the verb of `mcpo components` that the fix names.

    Raises:
        ConfigError: unknown kind or name.
    """
    registry = kind(kind_name).registry()
    if name not in registry:
        raise ConfigError(
            f"unknown {kind_name} '{name}': {nearest(name, registry)}",
            fix=mend(f"mcpo components {verb} {kind_name} {{}}", name, registry, f"mcpo components list {kind_name}"),
            code="unknown_name",
        )
    return registry[name]


def later(module: str, function: str) -> Callable[[], Any]:
    """`function` of `mcpo_cli.MODULE`; the module is imported at the first call."""

    def called() -> Any:
        return getattr(import_module(f"mcpo_cli.{module}"), function)()

    return called


def with_options(kind_name: str, name: str, options: Sequence[str]) -> Any:
    """A method, sampler or task with options as typed (`method.beta=2`), not checked against a run.

    Raises:
        ConfigError: unknown name or option, or a value out of its range.
    """
    from mcpo_cli.config import class_options

    return class_options.settings(find(kind_name, name), options, kind_name)


def options(component: Any) -> list[Facts]:
    """The options of a method, sampler or task, with the values that it has."""
    return [
        {**asdict(option), "value": getattr(component, option.name)} for option in settings.options(type(component))
    ]


def _of_method(method: Any) -> Facts:
    from mcpo_cli.methods import describe

    return {"about": describe.summary(method), "needs": sorted(method().needs)}


def _text_of_method(method: Any) -> str:
    from mcpo_cli.methods import describe

    return describe.text(method)


def _check_method(method: Any, overrides: Sequence[str]) -> "list[CheckOutcome]":
    from mcpo_cli.config import class_options
    from mcpo_cli.testing import check

    return check(class_options.settings(method, overrides, "method"))


def _check_sampler(sampler: Any, overrides: Sequence[str]) -> "list[CheckOutcome]":
    from mcpo_cli.config import class_options
    from mcpo_cli.testing import check_sampler

    return check_sampler(class_options.settings(sampler, overrides, "sampler"))


def _of_task(task: Any) -> Facts:
    from mcpo_cli.tasks import ClosedTask

    models = "any" if issubclass(task, ClosedTask) else "existing"
    return {"about": settings.summary(settings.docstring(task)), "grader": task.grader, "models": models}


def _check_task(task: Any, overrides: Sequence[str]) -> "list[CheckOutcome]":
    """The overrides `eval.problems` and `train.prompts` say how many problems the task's runs take."""
    from mcpo_cli.config import class_options
    from mcpo_cli.config.schema import Eval, Train
    from mcpo_cli.testing import check_task

    of_eval, of_train, of_task = list[str](), list[str](), list[str]()
    for word in overrides:
        {"eval.problems": of_eval, "train.prompts": of_train}.get(word.partition("=")[0], of_task).append(word)
    held_out = class_options.settings(Eval, of_eval, "eval").problems
    prompts = class_options.settings(Train, of_train, "train").prompts
    instance = class_options.settings(task, of_task, "task")
    return check_task(instance, held_out=held_out, prompts=prompts)


def _models() -> Mapping[str, Any]:
    from mcpo_cli.config import presets

    return {name: name for name in presets.groups()["model"]}


def _of_model(name: str) -> Facts:
    from mcpo_cli import pretrained
    from mcpo_cli.config import load
    from mcpo_cli.config.cost import weights

    model = load.preset_model(name)
    return {
        "run_name": model.name,
        "parameters": weights(*load.load([f"model={name}"])).count if not model.path else model.parameters,
        "scale": load.chosen("scale", [f"model={name}"]),
        "weights": model.quantization or ("float" if model.path else None),
        "source": model.path or "built from scratch",
        "fetched": pretrained.find(model) is not None if model.path else None,
    }


def _of_data(dataset: Any) -> Facts:
    source = dataset.origin.removeprefix("hub:")
    return {"role": dataset.role, "problems": dataset.size, "licence": dataset.licence, "source": source}


def _text_of_probe(measure: Any) -> str:
    """What it reads, and what each of its values means."""
    width = max(map(len, measure.values), default=0)
    values = "\n".join(f"  {name:<{width}}  {meaning}" for name, meaning in measure.values.items())
    optional_rows = f", and {', '.join(measure.also)} where a run has them" if measure.also else ""
    sentence = f"It reads rows of kind {', '.join(measure.needs)}{optional_rows}, and shows {', '.join(measure.shows)}."
    return f"{sentence}\n\nvalues:\n{values}"


def _of_suite(path: Any) -> Facts:
    from mcpo_cli.config import plan

    suite = plan.read(str(path))
    return {"about": suite.title, "question": suite.question, "arms": list(suite.arms)}


def _summary(entry: Any) -> Facts:
    return {"about": settings.summary(settings.docstring(entry))}


KINDS = {
    "method": Kind(
        "how rollouts become a gradient", later("methods", "registry"), _of_method, _text_of_method, _check_method
    ),
    "sampler": Kind(
        "which prompts a step trains on",
        later("prompt_samplers", "registry"),
        _summary,
        settings.docstring,
        _check_sampler,
    ),
    "task": Kind("where problems come from", later("tasks", "registry"), _of_task, settings.docstring, _check_task),
    "model": Kind("presets of models", _models, _of_model),
    "data": Kind("published sets of problems", later("data", "registry"), _of_data, lambda dataset: dataset.title),
    "collection": Kind("prefixes of generated sets of problems", later("data", "collections"), lambda collection: {}),
    "grader": Kind(
        "what decides whether an answer is correct", later("grading", "registry"), lambda where: {"where": where}
    ),
    "probe": Kind(
        "questions to the records of runs",
        later("measures", "registry"),
        lambda probe: {"question": probe.question},
        _text_of_probe,
    ),
    "artifact": Kind(
        "tables and figures to reproduce",
        later("report.artifacts", "registry"),
        lambda artifact: {"about": artifact.title, "suites": artifact.needs},
    ),
    "suite": Kind("arms to train and compare", later("config.plan", "suites"), _of_suite),
}
"""Every kind of components, by the word that `mcpo components` takes."""
