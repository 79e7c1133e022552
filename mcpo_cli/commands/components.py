"""`mcpo method`, `sampler` and `task`: list what is registered, show one, check one against its contract."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mcpo_cli.commands.verbs import Debug, Family, Json, completing
from mcpo_cli.errors import Findings

if TYPE_CHECKING:
    from mcpo_cli.methods import Method
    from mcpo_cli.samplers import Sampler
    from mcpo_cli.testing import Outcome

Chosen = TypeVar("Chosen")

method_app = typer.Typer(
    cls=Family, help="List methods, show one, check one against the contract.", no_args_is_help=True
)

MethodName = Annotated[
    str, typer.Argument(metavar="METHOD", help="A registered method.", autocompletion=completing("method"))
]
MethodOptions = Annotated[
    list[str] | None, typer.Argument(metavar="method.OPTION=VALUE", help="Its options.", show_default=False)
]


Rollouts = Annotated[int, typer.Option(min=2, max=4096, help="Group size G of the curve of a prompt's weight.")]
BAR = 40
"""Characters of the longest bar of a weight curve."""


@method_app.command("list")
def list_methods(as_json: Json = False, debug: Debug = False) -> None:
    """One line per method, with its inputs beyond rewards."""
    from mcpo_cli.commands import console
    from mcpo_cli.methods import describe, registry

    methods = {name: kind() for name, kind in sorted(registry().items())}
    listed: list[dict[str, Any]] = [
        {"method": name, "about": describe.summary(type(one)), "needs": sorted(one.needs)}
        for name, one in methods.items()
    ]
    if as_json:
        console.print_json({"methods": listed})
    else:
        rows = [[row["method"], row["about"], ", ".join(row["needs"])] for row in listed]
        console.print_table(["method", "what it is", "needs"], rows)


@method_app.command("show")
def show_method(
    name: MethodName,
    options: MethodOptions = None,
    rollouts: Rollouts = 16,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Source, formula and options of a method, the backends that train it, and how much a prompt weighs by accuracy."""
    from mcpo_cli.commands import console
    from mcpo_cli.methods import describe

    method = _method(name, options)
    text, needs = describe.text(type(method)), sorted(method.needs)
    backends, curve = describe.backends(method), describe.curve(method, rollouts)
    if as_json:
        facts = {"needs": needs, "backends": backends, "weight": {"rollouts": rollouts, "curve": curve}}
        console.print_json({"method": name, "text": text, "options": _options(method), **facts})
        return
    print(text, end="\n\n")
    _print_options("method", method)
    print("\nneeds: " + (", ".join(needs) or "nothing but rewards and lengths"))
    print("backends: " + ", ".join(f"{key} ({asks})" if asks else key for key, asks in backends.items()))
    if not curve:
        print("weight of a prompt: depends on more than its accuracy, so there is no curve")
        return
    print(f"weight of a prompt with {rollouts} rollouts, by accuracy:")
    most = max(weight for _, weight in curve) or 1
    for p, weight in curve:
        print(f"{p:7.4f} {weight:9.4f} {'#' * round(BAR * weight / most)}".rstrip())


@method_app.command("check")
def check_method(name: MethodName, options: MethodOptions = None, as_json: Json = False, debug: Debug = False) -> None:
    """Check that a method keeps the contract: splits, finite differences, degenerate groups, state; exit 1 if not.

    Your own tests can run the same checks with `mcpo_cli.testing.check`.
    """
    from mcpo_cli.testing import CHECKS, check

    method = _method(name, options)
    _report_checks("method", name, method.label, check(method), CHECKS, as_json=as_json)


def _options(component: Any) -> list[dict[str, Any]]:
    """The options of a method or sampler, with the values that it has."""
    from mcpo_cli import settings

    return [{**asdict(one), "value": getattr(component, one.name)} for one in settings.options(type(component))]


def _print_options(kind: str, component: Any) -> None:
    from mcpo_cli.commands import console

    rows = [[f"{kind}.{one['name']}", str(one["value"]), one["allowed"], one["meaning"]] for one in _options(component)]
    console.print_table(["option", "value", "allowed", "meaning"], rows)


def _report_checks(
    kind: str,
    name: str,
    label: str,
    outcomes: "Sequence[Outcome]",
    checks: Mapping[str, Callable[[Any], None]],
    *,
    as_json: bool,
) -> None:
    """Print what the `checks` of a kit found. Raises Findings if one failed."""
    from mcpo_cli.commands import console

    failed = [outcome for outcome in outcomes if not outcome.passed]
    document = {kind: label, "checks": [asdict(outcome) for outcome in outcomes]}
    if as_json and not failed:
        console.print_json(document)
    if not as_json:
        demands = {name: (one.__doc__ or "").partition("\n")[0] for name, one in checks.items()}
        marks = {(True, True): "ok", (False, True): "wrong", (False, False): "-"}
        rows = [[marks[one.passed, one.checked], one.name, one.detail or demands[one.name]] for one in outcomes]
        console.print_table(["", "check", "requirement, or what is wrong"], rows)
    if failed:
        wrong = [outcome.name for outcome in failed if outcome.checked]
        left = f"; {len(failed) - len(wrong)} are not checked" if len(wrong) < len(failed) else ""
        message = f"{kind} {name} fails {len(wrong)} of {len(outcomes)} checks{left}: {'; '.join(wrong)}"
        raise Findings(message, data=document)


sampler_app = typer.Typer(
    cls=Family, help="List samplers, show one, check one against the contract.", no_args_is_help=True
)
SamplerName = Annotated[
    str, typer.Argument(metavar="SAMPLER", help="A registered sampler.", autocompletion=completing("sampler"))
]
SamplerOptions = Annotated[
    list[str] | None, typer.Argument(metavar="sampler.OPTION=VALUE", help="Its options.", show_default=False)
]


@sampler_app.command("list")
def list_samplers(as_json: Json = False, debug: Debug = False) -> None:
    """One line per sampler."""
    from mcpo_cli import settings
    from mcpo_cli.commands import console
    from mcpo_cli.samplers import registry

    about = {name: settings.summary(settings.docstring(kind)) for name, kind in sorted(registry().items())}
    listed = [{"sampler": name, "about": text} for name, text in about.items()]
    console.print_list("samplers", listed, {"sampler": "sampler", "about": "what it is"}, as_json=as_json)


@sampler_app.command("show")
def show_sampler(
    name: SamplerName, options: SamplerOptions = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Source, rule and options of a sampler."""
    from mcpo_cli import settings
    from mcpo_cli.commands import console

    sampler = _sampler(name, options)
    text, found = settings.docstring(type(sampler)), _options(sampler)
    if as_json:
        console.print_json({"sampler": name, "text": text, "options": found})
        return
    print(text, end="\n\n")
    if found:
        _print_options("sampler", sampler)


@sampler_app.command("check")
def check_sampler(
    name: SamplerName, options: SamplerOptions = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Check that a sampler keeps the contract: batches, budgets, determinism, state, resuming; exit 1 if not.

    Your own tests can run the same checks with `mcpo_cli.testing.check_sampler`.
    """
    from mcpo_cli.testing import SAMPLER_CHECKS
    from mcpo_cli.testing import check_sampler as check

    _report_checks("sampler", name, name, check(_sampler(name, options)), SAMPLER_CHECKS, as_json=as_json)


def _sampler(name: str, options: list[str] | None) -> "Sampler":
    """The sampler with these options; raises ConfigError."""
    from mcpo_cli.samplers import get

    return _with_options("sampler", get(name), options)


task_app = typer.Typer(cls=Family, help="List tasks, check one against the contract.", no_args_is_help=True)
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="A registered task.", autocompletion=completing("task"))]
TaskOptions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="task.OPTION=VALUE",
        help="Its options; eval.problems and train.prompts: how many problems its runs take.",
        show_default=False,
    ),
]


@task_app.command("list")
def list_tasks(as_json: Json = False, debug: Debug = False) -> None:
    """One line per task, with its grader and which models it is for."""
    from mcpo_cli.commands import console
    from mcpo_cli.tasks import ClosedTask, registry

    listed = [
        {
            "task": name,
            "about": (kind.__doc__ or "").partition("\n")[0],
            "grader": kind.grader,
            "models": "any" if issubclass(kind, ClosedTask) else "existing",
        }
        for name, kind in sorted(registry().items())
    ]
    columns = {"task": "task", "about": "what it is", "grader": "grader", "models": "models"}
    console.print_list("tasks", listed, columns, as_json=as_json)


@task_app.command("check")
def check_task(name: TaskName, options: TaskOptions = None, as_json: Json = False, debug: Debug = False) -> None:
    """Check that a task keeps the contract: problems, splits, prompts, grader; exit 1 if not.

    Your own tests can run the same checks with `mcpo_cli.testing.check_task`.
    """
    from mcpo_cli.config import load
    from mcpo_cli.config.schema import Eval, Train
    from mcpo_cli.tasks import get
    from mcpo_cli.testing import TASK_CHECKS
    from mcpo_cli.testing import check_task as check

    held_out, prompts, own = list[str](), list[str](), list[str]()
    for text in options or []:
        {"eval.problems": held_out, "train.prompts": prompts}.get(text.partition("=")[0], own).append(text)
    sizes = {
        "held_out": load.settings(Eval, held_out, "eval").problems,
        "prompts": load.settings(Train, prompts, "train").prompts,
    }
    found = check(_with_options("task", get(name), own), **sizes)
    _report_checks("task", name, name, found, TASK_CHECKS, as_json=as_json)


def _method(name: str, options: list[str] | None) -> "Method":
    """The method with these options, without checking it against a run; raises ConfigError."""
    from mcpo_cli.methods import get

    return _with_options("method", get(name), options)


def _with_options(kind: str, default: Chosen, options: list[str] | None) -> Chosen:
    """`default`, a method, sampler or task (`kind`), with options as typed: `method.beta=2`; raises ConfigError."""
    from mcpo_cli.config import load

    return load.settings(type(default), options or [], kind)
