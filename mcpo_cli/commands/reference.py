"""`mcpo help` and `mcpo doctor`: settings and words explained, and what this machine lacks."""

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mcpo_cli.commands.verbs import Debug, Json, complete_settings
from mcpo_cli.errors import Findings

if TYPE_CHECKING:
    from mcpo_cli.config.reference import Entry

MOST_OWNERS = 3
"""Most methods named next to an option whose name has several meanings."""

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
    from mcpo_cli.commands import console
    from mcpo_cli.config import presets, reference

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
        if key in presets.groups()[family]:
            console.talk(f"the {family}: mcpo {family} show {key}")


def _row(entry: "Entry", *, named: bool) -> list[str]:
    """named: add the methods that have the option, because others have an option of the same name."""
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


def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Check Python, packages, GPUs, verl, MLflow, Hub, disk, limits, plug-ins; exit 1 if mcpo cannot train."""
    from mcpo_cli.commands import console
    from mcpo_cli.commands.machine_checks import examine

    lines = examine()
    broken = [line for line in lines if line.needed_by == "local" and line.state != "ok"]
    document = {"ok": not broken, "lines": [asdict(line) for line in lines]}
    if not as_json:
        rows = [[line.name, line.needed_by, line.state, line.found] for line in lines]
        console.print_table(["", "for", "state", "found"], rows)
        # A fix may be a command to copy, which a table must not break.
        fixes = {line.fix: [other.name for other in lines if other.fix == line.fix] for line in lines if line.fix}
        console.print_text("\n".join(f"\n{', '.join(names)}:\n  {fix}" for fix, names in fixes.items()))
        lacking = ", ".join(line.name for line in lines if line not in broken and line.state != "ok")
        console.print_text(f"\nmissing, but not needed to train here: {lacking}" if lacking else "\nnothing is missing")
    elif not broken:
        console.print_json(document)
    if broken:
        names = ", ".join(line.name for line in broken)
        raise Findings(f"mcpo cannot train here: {names}", fix=broken[0].fix or None, data=document)
