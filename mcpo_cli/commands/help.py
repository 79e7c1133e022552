"""`mcpo help`: explain a setting."""

from typing import TYPE_CHECKING, Annotated

import typer

from mcpo_cli.commands.options import Debug, Json, complete_settings

if TYPE_CHECKING:
    from mcpo_cli.config.reference import Entry

Key = Annotated[
    str,
    typer.Argument(
        metavar="[SETTING|GROUP]",
        help="A setting, such as train.lr, or a group of them, such as train.",
        autocompletion=complete_settings,
        show_default=False,
    ),
]


def help_(key: Key = "", as_json: Json = False, debug: Debug = False) -> None:
    """Explain settings: meaning, default, allowed values. Without a name, list them all."""
    from dataclasses import asdict

    from mcpo_cli.commands import console
    from mcpo_cli.config import reference

    found = reference.look_up(key) if key else reference.entries()
    if as_json:
        console.print_json({"settings": [asdict(entry) for entry in found]})
    elif len({entry.key for entry in found}) == 1:
        print("\n\n".join(map(_explained, found)))
    else:
        console.print_table(["setting", "default", "meaning"], [_row(entry) for entry in found])


def _row(entry: "Entry") -> list[str]:
    return [entry.key, str(entry.default), entry.meaning]


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
