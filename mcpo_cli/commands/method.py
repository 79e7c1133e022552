"""`mcpo method`: check that a method keeps the contract."""

from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, Json, complete_methods

app = typer.Typer(help="Check that a method keeps the contract.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="METHOD", help="A registered method.", autocompletion=complete_methods)]
Options = Annotated[
    list[str] | None, typer.Argument(metavar="method.OPTION=VALUE", help="Its options.", show_default=False)
]


@app.command()
def check(name: Name, options: Options = None, as_json: Json = False, debug: Debug = False) -> None:
    """Check that a method keeps the contract: splits, finite differences, degenerate groups, state; exit 1 if not.

    Your own tests can run the same checks with `mcpo_cli.testing.check`.
    """
    from dataclasses import asdict

    from mcpo_cli.commands import console
    from mcpo_cli.config import load
    from mcpo_cli.errors import Findings
    from mcpo_cli.testing import CHECKS, check

    (spec,) = load.load([f"method={name}", *(options or [])])
    outcomes = check(spec.method)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    document = {"method": spec.method.label, "checks": [asdict(outcome) for outcome in outcomes]}
    if as_json and not failed:
        console.print_json(document)
    if not as_json:
        demands = {name: (one.__doc__ or "").partition("\n")[0] for name, one in CHECKS.items()}
        rows = [["ok" if one.passed else "wrong", one.name, one.detail or demands[one.name]] for one in outcomes]
        console.print_table(["", "check", "requirement, or what is wrong"], rows)
    if failed:
        names = "; ".join(outcome.name for outcome in failed)
        raise Findings(f"method {name} fails {len(failed)} of {len(outcomes)} checks: {names}", data=document)
