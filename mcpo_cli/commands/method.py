"""`mcpo method`: list methods, show one, check that one keeps the contract."""

from typing import TYPE_CHECKING, Annotated

import typer

from mcpo_cli.commands.options import Debug, Json, complete_methods

if TYPE_CHECKING:
    from mcpo_cli.methods import Method

app = typer.Typer(help="List methods, show one, check that one keeps the contract.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="METHOD", help="A registered method.", autocompletion=complete_methods)]
Options = Annotated[
    list[str] | None, typer.Argument(metavar="method.OPTION=VALUE", help="Its options.", show_default=False)
]


Rollouts = Annotated[int, typer.Option(min=2, max=4096, help="Of a prompt, for the curve of its weight.")]
BAR = 40
"""Characters of the longest bar of a weight curve."""


@app.command("list")
def list_methods(as_json: Json = False, debug: Debug = False) -> None:
    """Every method in a line, with what it needs beyond rewards."""
    from mcpo_cli.commands import console
    from mcpo_cli.methods import describe, registry

    methods = {name: kind() for name, kind in sorted(registry().items())}
    abouts = {name: describe.summary(type(method)) for name, method in methods.items()}
    needs = {name: sorted(method.needs) for name, method in methods.items()}
    if as_json:
        listed = [{"method": name, "about": abouts[name], "needs": needs[name]} for name in methods]
        console.print_json({"methods": listed})
    else:
        rows = [[name, abouts[name], ", ".join(needs[name])] for name in methods]
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
    from dataclasses import asdict

    from mcpo_cli.commands import console
    from mcpo_cli.errors import Findings
    from mcpo_cli.testing import CHECKS, check

    method = _method(name, options)
    outcomes = check(method)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    document = {"method": method.label, "checks": [asdict(outcome) for outcome in outcomes]}
    if as_json and not failed:
        console.print_json(document)
    if not as_json:
        demands = {name: (one.__doc__ or "").partition("\n")[0] for name, one in CHECKS.items()}
        rows = [["ok" if one.passed else "wrong", one.name, one.detail or demands[one.name]] for one in outcomes]
        console.print_table(["", "check", "requirement, or what is wrong"], rows)
    if failed:
        names = "; ".join(outcome.name for outcome in failed)
        raise Findings(f"method {name} fails {len(failed)} of {len(outcomes)} checks: {names}", data=document)


def _method(name: str, options: list[str] | None) -> "Method":
    """The method with these options, whatever run it may fit; raises ConfigError."""
    from mcpo_cli.config import load
    from mcpo_cli.methods import get

    # `get` says which names there are.
    return load.settings(type(get(name)), [text.removeprefix("method.") for text in options or []])
