"""The verbs that explain samplers: `mcpo sampler list`, `show` and `check`."""

from typing import TYPE_CHECKING, Annotated

import typer

from mcpo_cli.commands.about import report_checks, with_options
from mcpo_cli.commands.verbs import Debug, Family, Json, complete_samplers

if TYPE_CHECKING:
    from mcpo_cli.samplers import Sampler

app = typer.Typer(cls=Family, help="List samplers, show one, check one against the contract.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="SAMPLER", help="A registered sampler.", autocompletion=complete_samplers)]
Options = Annotated[
    list[str] | None, typer.Argument(metavar="sampler.OPTION=VALUE", help="Its options.", show_default=False)
]


@app.command("list")
def list_samplers(as_json: Json = False, debug: Debug = False) -> None:
    """One line per sampler."""
    from mcpo_cli import settings
    from mcpo_cli.commands import console
    from mcpo_cli.samplers import registry

    about = {name: settings.summary(settings.docstring(kind)) for name, kind in sorted(registry().items())}
    listed = [{"sampler": name, "about": text} for name, text in about.items()]
    if as_json:
        console.print_json({"samplers": listed})
    else:
        console.print_table(["sampler", "what it is"], [[row["sampler"], row["about"]] for row in listed])


@app.command()
def show(name: Name, options: Options = None, as_json: Json = False, debug: Debug = False) -> None:
    """Source, rule and options of a sampler."""
    from dataclasses import asdict

    from mcpo_cli import settings
    from mcpo_cli.commands import console

    sampler = _sampler(name, options)
    text, found = settings.docstring(type(sampler)), settings.options(type(sampler))
    if as_json:
        listed = [{**asdict(option), "value": getattr(sampler, option.name)} for option in found]
        console.print_json({"sampler": name, "text": text, "options": listed})
        return
    print(text, end="\n\n")
    if found:
        rows = [[f"sampler.{one.name}", str(getattr(sampler, one.name)), one.allowed, one.meaning] for one in found]
        console.print_table(["option", "value", "allowed", "meaning"], rows)


@app.command()
def check(name: Name, options: Options = None, as_json: Json = False, debug: Debug = False) -> None:
    """Check that a sampler keeps the contract: batches, budgets, determinism, state, resuming; exit 1 if not.

    Your own tests can run the same checks with `mcpo_cli.testing.check_sampler`.
    """
    from mcpo_cli.testing import SAMPLER_CHECKS, check_sampler

    report_checks("sampler", name, name, check_sampler(_sampler(name, options)), SAMPLER_CHECKS, as_json=as_json)


def _sampler(name: str, options: list[str] | None) -> "Sampler":
    """The sampler with these options; raises ConfigError."""
    from mcpo_cli.samplers import get

    return with_options("sampler", get(name), options)
