"""Writes the reference pages of the documentation from the code: `docs/verbs.md`, `settings.md` and `concepts.md`.

`python .ci/reference.py` writes them; a test compares them with what the code says now.
"""

import html
import re
import textwrap
from itertools import groupby
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

from mcpo_cli.config import glossary, reference
from mcpo_cli.main import app

DOCS = Path(__file__).resolve().parents[1] / "docs"
EXAMPLES = re.compile(r"\x08\nExamples:\n((?:  .*\n)+)")
"""The end of a verb's help, which click does not wrap."""
SETTINGS = """\
# Settings

Every key that an override may name, as `mcpo help` explains it. A setting of the kind *identity* changes the result
and the run id; one of the kind *runtime* changes neither. Options of plug-ins are not listed here; `mcpo help` has
them.
"""


def verbs() -> str:
    """The page of all verbs and their options."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="mcpo")
    page = html.unescape(get_docs_for_click(obj=command, ctx=context, name="mcpo", title="Verbs and options"))
    return EXAMPLES.sub(_console, page).rstrip() + "\n"


def _console(examples: re.Match[str]) -> str:
    lines = textwrap.dedent(examples[1]).splitlines()
    shown = [line if line.startswith((" ", "#")) else f"$ {line}" for line in lines]
    return "\n".join(["**Examples**:", "", "```console", *shown, "```", ""])


def settings() -> str:
    """The page of all settings, a table a group."""
    parts = [SETTINGS]
    for group, entries in groupby(reference.entries(), key=lambda entry: entry.key.partition(".")[0]):
        parts += [f"## {group}", "| setting | default | allowed | meaning | kind |\n|---|---|---|---|---|"]
        parts[-1] += "".join(_row(entry) for entry in entries)
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _row(entry: reference.Entry) -> str:
    owners = f" Option of {', '.join(entry.owners)}." if entry.owners else ""
    cells = [f"`{entry.key}`", f"`{entry.default}`", entry.allowed, entry.meaning + owners, entry.role]
    return "\n| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def concepts() -> str:
    """The page of all words, a table a section."""
    found = glossary.read()
    parts = ["# Concepts", found.intro]
    for title, words in found.sections.items():
        columns = ["word", "meaning", *(["example"] if any(word.example for word in words) else [])]
        rows = [columns, *([getattr(word, column) for column in columns] for word in words)]
        head, *lines = [f"| {' | '.join(cells)} |" for cells in rows]
        parts.append("\n".join([f"## {title}", head, "|" + "---|" * len(columns), *lines]))
    return "\n\n".join(parts) + "\n"


PAGES = {"verbs.md": verbs, "settings.md": settings, "concepts.md": concepts}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
