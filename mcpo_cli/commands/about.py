"""The verbs that explain: `mcpo method`, `task`, `help`, `schema` and `doctor`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from mcpo_cli.commands.verbs import Debug, Family, Json, complete_methods, complete_settings, complete_tasks

if TYPE_CHECKING:
    from mcpo_cli.config.reference import Entry
    from mcpo_cli.methods import Method
    from mcpo_cli.testing import Outcome

Chosen = TypeVar("Chosen")
SCHEMA_EXAMPLES = """\
\b
Examples:
  mcpo schema suite > suite.schema.json                  then, as the first line of a suite:
  # yaml-language-server: $schema=./suite.schema.json    editors with the YAML language server complete and check it"""

app = typer.Typer(cls=Family, help="List methods, show one, check one against the contract.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="METHOD", help="A registered method.", autocompletion=complete_methods)]
Options = Annotated[
    list[str] | None, typer.Argument(metavar="method.OPTION=VALUE", help="Its options.", show_default=False)
]


Rollouts = Annotated[int, typer.Option(min=2, max=4096, help="Group size G of the curve of a prompt's weight.")]
BAR = 40
"""Characters of the longest bar of a weight curve."""
MOST_OWNERS = 3
"""Methods named beside an option of one name and several meanings."""


@app.command("list")
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


@app.command()
def show(
    name: Name, options: Options = None, rollouts: Rollouts = 16, as_json: Json = False, debug: Debug = False
) -> None:
    """Source, formula and options of a method, the backends that train it, and how much a prompt weighs by accuracy."""
    from dataclasses import asdict

    from mcpo_cli import settings
    from mcpo_cli.commands import console
    from mcpo_cli.methods import describe

    method = _method(name, options)
    text, found, needs = describe.text(type(method)), settings.options(type(method)), sorted(method.needs)
    backends, curve = describe.backends(method), describe.curve(method, rollouts)
    if as_json:
        listed = [{**asdict(option), "value": getattr(method, option.name)} for option in found]
        facts = {"needs": needs, "backends": backends, "weight": {"rollouts": rollouts, "curve": curve}}
        console.print_json({"method": name, "text": text, "options": listed, **facts})
        return
    print(text, end="\n\n")
    rows = [
        [f"method.{option.name}", str(getattr(method, option.name)), option.allowed, option.meaning] for option in found
    ]
    console.print_table(["option", "value", "allowed", "meaning"], rows)
    print("\nneeds: " + (", ".join(needs) or "nothing but rewards and lengths"))
    print("backends: " + ", ".join(f"{key} ({asks})" if asks else key for key, asks in backends.items()))
    if not curve:
        print("weight of a prompt: depends on more than its accuracy, so there is no curve")
        return
    print(f"weight of a prompt with {rollouts} rollouts, by accuracy:")
    most = max(weight for _, weight in curve) or 1
    for p, weight in curve:
        print(f"{p:7.4f} {weight:9.4f} {'#' * round(BAR * weight / most)}".rstrip())


@app.command()
def check(name: Name, options: Options = None, as_json: Json = False, debug: Debug = False) -> None:
    """Check that a method keeps the contract: splits, finite differences, degenerate groups, state; exit 1 if not.

    Your own tests can run the same checks with `mcpo_cli.testing.check`.
    """
    from mcpo_cli.testing import CHECKS, check

    method = _method(name, options)
    report_checks("method", name, method.label, check(method), CHECKS, as_json=as_json)


def report_checks(
    kind: str,
    name: str,
    label: str,
    outcomes: "Sequence[Outcome]",
    checks: Mapping[str, Callable[[Any], None]],
    *,
    as_json: bool,
) -> None:
    """Print what the `checks` of a kit found. Raises Findings if one failed."""
    from dataclasses import asdict

    from mcpo_cli.commands import console
    from mcpo_cli.errors import Findings

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


task_app = typer.Typer(cls=Family, help="List tasks, check one against the contract.", no_args_is_help=True)
Task = Annotated[str, typer.Argument(metavar="TASK", help="A registered task.", autocompletion=complete_tasks)]
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
    if as_json:
        console.print_json({"tasks": listed})
    else:
        console.print_table(["task", "what it is", "grader", "models"], [list(row.values()) for row in listed])


@task_app.command("check")
def check_task(name: Task, options: TaskOptions = None, as_json: Json = False, debug: Debug = False) -> None:
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
    found = check(with_options("task", get(name), own), **sizes)
    report_checks("task", name, name, found, TASK_CHECKS, as_json=as_json)


def _method(name: str, options: list[str] | None) -> "Method":
    """The method with these options, whatever run it may fit; raises ConfigError."""
    from mcpo_cli.methods import get

    return with_options("method", get(name), options)


def with_options(kind: str, default: Chosen, options: list[str] | None) -> Chosen:
    """`default`, a method, sampler or task (`kind`), with options as typed: `method.beta=2`; raises ConfigError."""
    from mcpo_cli.config import load

    return load.settings(type(default), options or [], kind)


Key = Annotated[
    str,
    typer.Argument(
        metavar="[SETTING|GROUP]",
        help="A setting (train.lr), a group of them (train), or a word (mastered, kl).",
        autocompletion=complete_settings,
    ),
]


def help_(key: Key = "", as_json: Json = False, debug: Debug = False) -> None:
    """Explain settings (meaning, default, allowed values) and the words of mcpo. Without a name, list all settings."""
    from dataclasses import asdict

    from mcpo_cli.commands import console
    from mcpo_cli.config import load, reference

    found, words = reference.look_up(key) if key else (reference.entries(), [])
    if as_json:
        console.print_json({"settings": [asdict(entry) for entry in found], "words": [asdict(word) for word in words]})
        return
    for word in words:
        example = f" For example: {word.example}." if word.example else ""
        console.print_text(f"{word.word}: {word.meaning}{example}".replace("`", ""))
    if words:
        print()
    if len({entry.key for entry in found}) == 1:
        print("\n\n".join(map(_explained, found)))
    elif found:
        often = Counter(entry.key for entry in found)
        rows = [_row(entry, named=often[entry.key] > 1) for entry in found]
        console.print_table(["setting", "default", "meaning"], rows)
    for family in ("method", "sampler"):
        if key in load.groups()[family]:
            console.talk(f"the {family}: mcpo {family} show {key}")


def _row(entry: "Entry", *, named: bool) -> list[str]:
    """named: with the methods that have the option, as others have one of the same name."""
    some = ", ".join(entry.owners[:MOST_OWNERS]) + (", ..." if len(entry.owners) > MOST_OWNERS else "")
    return [entry.key, str(entry.default), f"{entry.meaning} ({some})" if named and some else entry.meaning]


def _explained(entry: "Entry") -> str:
    kind = {"identity": "changes the result and the run id", "runtime": "changes neither the result nor the run id"}
    lines = {
        "default": str(entry.default),
        "allowed": entry.allowed,
        "option of": ", ".join(entry.owners),
        "kind": f"{entry.role}: {kind[entry.role]}",
    }
    about = [f"  {name:<9}  {value}" for name, value in lines.items() if value]
    return "\n".join([f"{entry.key}: {entry.meaning}", *about])


Kind = Annotated[
    Literal["suite", "preset", "model", "claims"],
    typer.Argument(help="suite; preset (a regime or scale); model (a preset of sizes); claims.", show_default=False),
]


def schema(kind: Kind, debug: Debug = False) -> None:
    """Print the JSON schema of a suite, a preset or a file of claims, with the installed methods and plug-ins."""
    from mcpo_cli.commands import console
    from mcpo_cli.config import reference

    makers = {"suite": reference.suite, "preset": reference.preset, "model": reference.model, "claims": _claims}
    console.print_schema(makers[kind]())


def _claims() -> dict[str, Any]:
    from mcpo_cli.analysis import claims

    return claims.schema()


def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Check Python, packages, GPUs, verl, MLflow, Hub, disk, limits, plug-ins; exit 1 if mcpo cannot train."""
    from dataclasses import asdict

    from mcpo_cli.commands import console
    from mcpo_cli.commands.machine_checks import examine
    from mcpo_cli.errors import Findings

    lines = examine()
    broken = [line for line in lines if line.needed_by == "local" and line.state != "ok"]
    document = {"ok": not broken, "lines": [asdict(line) for line in lines]}
    if not as_json:
        rows = [[line.name, line.needed_by, line.state, line.found] for line in lines]
        console.print_table(["", "for", "state", "found"], rows)
        # A fix may be a command to copy, which no table must break.
        fixes = {line.fix: [other.name for other in lines if other.fix == line.fix] for line in lines if line.fix}
        console.print_text("\n".join(f"\n{', '.join(names)}:\n  {fix}" for fix, names in fixes.items()))
        lacking = ", ".join(line.name for line in lines if line not in broken and line.state != "ok")
        console.print_text(f"\nmissing, but not needed to train here: {lacking}" if lacking else "\nnothing is missing")
    elif not broken:
        console.print_json(document)
    if broken:
        names = ", ".join(line.name for line in broken)
        raise Findings(f"mcpo cannot train here: {names}", fix=broken[0].fix or None, data=document)
