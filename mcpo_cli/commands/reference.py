"""`mcpo help` and `mcpo doctor`: settings and words explained, and what this machine lacks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Part, Reply, table, verb
from mcpo_cli.errors import Findings

if TYPE_CHECKING:
    from mcpo_cli.config.reference import Entry, Word

MOST_OWNERS = 3
"""Most methods named next to an option whose name has several meanings."""

Key = Annotated[
    str,
    typer.Argument(
        metavar="[SETTING|GROUP]",
        help="A setting (train.lr), a group of them (train), or a word (mastered, kl).",
        autocompletion=completing("setting"),
    ),
]

Skill = Annotated[
    bool, typer.Option("--skill", help="Print how a program that does research by itself uses mcpo (a SKILL.md).")
]


@verb("settings, words; or skill")
def help_(key: Key = "", skill: Skill = False) -> Reply:
    """Explain settings (meaning, default, allowed values) and the words of mcpo. Without a name, list all settings."""
    if skill:
        from mcpo_cli.commands.skill import SKILL

        return Reply({"skill": SKILL}, SKILL)
    from mcpo_cli.config import reference

    entries, words = reference.look_up(key) if key else (reference.entries(), [])
    document = {"settings": [asdict(entry) for entry in entries], "words": [asdict(word) for word in words]}
    return Reply(document, _page(key, entries, words))


def _page(key: str, entries: Sequence["Entry"], words: Sequence["Word"]) -> Iterator[Part]:
    from mcpo_cli.commands import console
    from mcpo_cli.config import presets

    for word in words:
        example = f" For example: {word.example}." if word.example else ""
        yield f"{word.word}: {word.meaning}{example}".replace("`", "")
    if words:
        yield ""
    if len({entry.key for entry in entries}) == 1:
        yield "\n\n".join(map(_explained, entries))
    elif entries:
        often = Counter(entry.key for entry in entries)
        rows = [_row(entry, named=often[entry.key] > 1) for entry in entries]
        yield table(["setting", "default", "meaning"], rows)
    for kind in ("method", "sampler", "task"):
        if key in presets.groups()[kind]:
            yield partial(console.talk, f"the {kind}: mcpo components show {kind} {key}")


def _row(entry: "Entry", *, named: bool) -> list[str]:
    """named: add the methods that have the option, because others have an option of the same name."""
    owners = ", ".join(entry.owners[:MOST_OWNERS]) + (", ..." if len(entry.owners) > MOST_OWNERS else "")
    return [entry.key, str(entry.default), f"{entry.meaning} ({owners})" if named and owners else entry.meaning]


def _explained(entry: "Entry") -> str:
    kind = {"identity": "changes the result and the run id", "runtime": "changes neither the result nor the run id"}
    lines = {
        "default": str(entry.default),
        "allowed": entry.allowed,
        "option of": ", ".join(entry.owners),
        "kind": f"{entry.role}: {kind[entry.role]}",
    }
    facts = [f"  {name:<9}  {value}" for name, value in lines.items() if value]
    return "\n".join([f"{entry.key}: {entry.meaning}", *facts])


@verb("ok, lines")
def doctor() -> Reply:
    """Check Python, packages, GPUs, verl, MLflow, Hub, disk, limits, plug-ins; exit 1 if mcpo cannot train."""
    from mcpo_cli.doctor import examine

    lines = examine()
    broken = [line for line in lines if line.needed_by == "local" and line.state != "ok"]
    page: list[Part] = [
        table(["", "for", "state", "found"], [[line.name, line.needed_by, line.state, line.found] for line in lines])
    ]
    # A fix may be a command to copy, which a table must not break.
    fixes = {line.fix: [other.name for other in lines if other.fix == line.fix] for line in lines if line.fix}
    page += [f"\n{', '.join(names)}:\n  {fix}" for fix, names in fixes.items()]
    gaps = ", ".join(line.name for line in lines if line not in broken and line.state != "ok")
    page.append(f"\nmissing, but not needed to train here: {gaps}" if gaps else "\nnothing is missing")
    error = None
    if broken:
        names = ", ".join(line.name for line in broken)
        error = Findings(f"mcpo cannot train here: {names}", fix=broken[0].fix or None)
    return Reply({"ok": not broken, "lines": [asdict(line) for line in lines]}, page, error)
