"""`mcpo schema`: JSON schemas of the files that users write, for their editors."""

from typing import Annotated, Any, Literal

import typer

from mcpo_cli.commands.options import Debug

EPILOG = """\
Examples:

mcpo schema suite > suite.schema.json                    then, as the first line of a suite:

# yaml-language-server: $schema=./suite.schema.json      editors with the YAML language server complete and check it"""

Kind = Annotated[
    Literal["suite", "preset", "model", "claims"],
    typer.Argument(help="suite; preset (a regime or scale); model (a preset of sizes); claims.", show_default=False),
]


def schema(kind: Kind, debug: Debug = False) -> None:
    """Print the JSON schema of a suite, a preset or a file of claims, with the methods and plug-ins there are."""
    from mcpo_cli.commands import console
    from mcpo_cli.config import json_schema

    makers = {"suite": json_schema.suite, "preset": json_schema.preset, "model": json_schema.model, "claims": _claims}
    console.print_schema(makers[kind]())


def _claims() -> dict[str, Any]:
    from mcpo_cli.analysis import claims

    return claims.schema()
