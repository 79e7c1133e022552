"""Writes the reference pages of the documentation from the code: verbs, settings, samplers and concepts.

`python .ci/reference.py` writes them; none is in git. A list that is too long for one page is an index and a folder
with a page for each entry.
"""

import html
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

from mcpo_cli.config import reference
from mcpo_cli.main import app
from mcpo_cli.prompt_samplers import Sampler, registry
from mcpo_cli.settings import docstring, summary

DOCS = Path(__file__).resolve().parents[1] / "docs"
EXAMPLES = re.compile(r"\x08\nExamples:\n((?:  .*\n)+)")
"""The end of a verb's help, which click does not wrap."""
SETTINGS = """\
# Settings

Every key that an override may name, as `mcpo help KEY` explains it; `mcpo help WORD` searches. A setting of the kind
*identity* changes the result and the run id; one of the kind *runtime* changes neither. Options of plug-ins are not
listed here; `mcpo help` has them.

| page | its settings |
|---|---|
"""
ELSEWHERE = {
    "method": "The options of a method are on [its page](../methods.md).\n\n",
    "sampler": "The options of a sampler are on [the page of samplers](../samplers.md).\n\n",
}
"""Groups whose options are explained elsewhere, with the sentence that says where."""
VERB = re.compile(r"^## (?=`mcpo ([\w-]+)`$)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)(docs/)?")
"""The beginning of a link in README.md to a page of the site, or to another file."""
LISTED = re.compile(r"^\* `([a-z]+)`: .*$", re.MULTILINE)
"""A verb in the list of all verbs, in which typer cuts the descriptions."""


CHECKED = "Checked: "
"""Begins the paragraph of a sampler's docstring on the implementation or numbers that it was checked against."""
SAMPLERS = """\
# Samplers

A sampler decides which prompts a global step rolls and which finished groups it trains on. `mcpo train sampler=NAME`
chooses one; most methods meet any sampler, and a pair that does not fit is refused before training. Unset, it
is `refill` where `method.dynamic_sampling` is true (as with `method=dapo`), else `uniform`: the same runs with the same
ids as when only that option existed. A sampler that is chosen decides on that option.

Each is deterministic, and a killed run draws what an uninterrupted one draws. Rollouts that are thrown away count as
costs. All but `knapsack` run on both backends. Under `backend=verl`, `uniform` and `refill` use verl's own data loader
and its refilling of single groups while others are sampled, so that `refill` may throw away other groups than on the
local engine; every other sampler draws its rounds there as it does here.

All of these pass the same checks in CI; [your own](write-a-sampler.md) can be in a folder (the right column is cut):

```console
$ mcpo components check sampler greso
    check                          requirement, or what is wrong
ok  name and options               The name can be in settings, and the options agree ...
ok  every step gets a batch        Each step gets a whole batch; a sampler without a filter ...
ok  budgets are kept               Where no group is wanted, a step ends once it has rolled ...
ok  no prompt is twice in a batch  No problem is in a batch twice, unless the stream itself ...
ok  draws are deterministic        The same draws every time, whatever other code does ...
ok  nothing is changed in place    `draw` and `after` leave the state that they get as it is.
ok  only declared state            The state is columns of numbers with the same names ...
ok  a resumed run draws the same   From the checkpoint of any step, written and read ...
```
"""
ABSENT = """\
## Not here

Failure-prefix conditioning (arXiv 2601.20829): a rollout would start from a prefix that is prompt for the loss and \
answer for the grader, and no backend has that.
"""


def verbs() -> dict[str, str]:
    """The list of all verbs, and a page for each with its options."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="mcpo")
    text = html.unescape(get_docs_for_click(obj=command, ctx=context, name="mcpo", title="Verbs and options"))
    index, *parts = VERB.split(EXAMPLES.sub(_console, text))
    pages = dict(zip(parts[::2], parts[1::2], strict=True))
    about = {name: page.split("\n\n")[1].replace("\n", " ") for name, page in pages.items()}
    index = LISTED.sub(lambda listed: f"* [`{listed[1]}`](verbs/{listed[1]}.md): {about[listed[1]]}", index)
    own = {f"verbs/{name}.md": "# " + page.replace("\n### ", "\n## ") for name, page in pages.items()}
    return {name: page.rstrip() + "\n" for name, page in {"verbs.md": index, **own}.items()}


def _console(examples: re.Match[str]) -> str:
    lines = textwrap.dedent(examples[1]).splitlines()
    shown = [line if line.startswith((" ", "#")) else f"$ {line}" for line in lines]
    return "\n".join(["**Examples**:", "", "```console", *shown, "```", ""])


def settings() -> dict[str, str]:
    """The list of groups, and a page with the table of each; options with a page of their own are left to it."""
    index, pages = SETTINGS, {}
    for group, found in groupby(reference.entries(), key=lambda entry: entry.key.partition(".")[0]):
        entries = [entry for entry in found if group not in ELSEWHERE or not entry.owners]
        by_key = [list(same) for _, same in groupby(entries, key=lambda entry: entry.key)]
        keys = ", ".join(f"`{same[0].key}`" for same in by_key)
        index += f"| [{group}](settings/{group}.md) | {keys} |\n"
        # Hiding the empty table of contents leaves its width to the table.
        head = f"---\nhide: [toc]\n---\n# Settings: {group}\n\n" + ELSEWHERE.get(group, "")
        head += "| setting | default | allowed | meaning | kind |\n|---|---|---|---|---|"
        pages[f"settings/{group}.md"] = head + "".join(map(_row, by_key)) + "\n"
    return {"settings.md": index, **pages}


def _row(same: Sequence[reference.Entry]) -> str:
    """A line for a key; what differs between its owners is on lines of its cells."""
    owners = [f" Option of {', '.join(entry.owners)}." if entry.owners else "" for entry in same]
    cells = [
        [f"`{entry.key}`" for entry in same],
        [f"`{entry.default}`" for entry in same],
        [entry.allowed for entry in same],
        [entry.meaning + owner for entry, owner in zip(same, owners, strict=True)],
        [entry.role for entry in same],
    ]
    return "\n| " + " | ".join("<br>".join(dict.fromkeys(cell)).replace("|", "\\|") for cell in cells) + " |"


def samplers() -> str:
    """The page of all samplers: a table, then each with its options."""
    kinds = dict(sorted(registry().items()))
    head = "| sampler | what it is | checked against |\n|---|---|---|"
    table = [head, *(_sampler_row(name, kind) for name, kind in kinds.items())]
    parts = [SAMPLERS, "\n".join(table), ABSENT]
    for name, kind in kinds.items():
        parts += [f"## {name}", docstring(kind).partition(f"\n\n{CHECKED}")[0]]
        if options := [
            entry for entry in reference.entries() if entry.key.startswith("sampler.") and name in entry.owners
        ]:
            rows = "".join(_row([replace(entry, owners=())]) for entry in options)
            parts.append("| option | default | allowed | meaning | kind |\n|---|---|---|---|---|" + rows)
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _sampler_row(name: str, kind: type[Sampler]) -> str:
    text = docstring(kind)
    checked = " ".join(text.partition(f"\n\n{CHECKED}")[2].partition("\n\n")[0].split())
    return f"| [`{name}`](#{name}) | {summary(text).rstrip('.')} | {checked.rstrip('.')} |"


def concepts() -> str:
    """The page of all words, with one table per section."""
    found = reference.glossary()
    parts = ["# Concepts", found.intro]
    for title, words in found.sections.items():
        columns = ["word", "meaning", *(["example"] if any(word.example for word in words) else [])]
        rows = [columns, *([getattr(word, column) for column in columns] for word in words)]
        head, *lines = [f"| {' | '.join(cells)} |" for cells in rows]
        parts.append("\n".join([f"## {title}", head, "|" + "---|" * len(columns), *lines]))
    return "\n\n".join(parts) + "\n"


def start() -> str:
    """README.md as the first page of the site; its links are those of a file in `docs`."""
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    return LINK.sub(lambda link: "](" if link[1] else "](../", text)


def pages() -> dict[str, str]:
    """All of these pages by their name below `docs`."""
    return {
        "index.md": start(), **verbs(), **settings(), "samplers.md": samplers(), "concepts.md": concepts()
    }  # fmt: skip


def write(folder: Path) -> None:
    """Write the pages, and remove those of entries that no longer exist."""
    found = pages()
    for name, page in found.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(page, encoding="utf-8")
    for name in ("verbs", "settings"):
        for path in (folder / name).glob("*.md"):
            if f"{name}/{path.name}" not in found:
                path.unlink()


if __name__ == "__main__":
    write(DOCS)
