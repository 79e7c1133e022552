"""Finds active content in files for browsers, GitHub, LaTeX and spreadsheets, as these programs read them."""

import csv
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

csv.field_size_limit(10**9)  # spreadsheets do not have this limit
ACTING = {"iframe", "object", "embed", "link", "base", "form", "math", "template", "frame", "audio", "video"}
ACTING |= {"svg", "foreignobject", "animate", "set", "use", "image"}
FORMULA = tuple("=+-@\t\r")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        told = {name: value or "" for name, value in attrs}
        acts = [name for name in told if name.startswith("on") or (tag == "meta" and name == "http-equiv")]
        leads = [told[name] for name in ("src", "href", "srcdoc") if name in told]
        elsewhere = [to for to in leads if not to.startswith(("#", "data:image/png;base64,")) and ":" in to]
        ours = tag == "svg" and told.get("role") == "img"  # the picture of a comparison
        self.found += [f"<{tag}>"] * (tag in ACTING and not ours) + acts + elsewhere


def html(text: str, _path: Path) -> Iterator[str]:
    page = _Page()
    page.feed(text)
    yield from page.found
    yield from ["a second script"] * (page.scripts > 1)


def markdown(text: str, _path: Path) -> Iterator[str]:
    outside = re.sub(r"(`+).*?\1", "", text)
    yield from re.findall(r"(?<!\\)<[a-zA-Z/!][^>]*|(?<!\\)\]\(\w+:[^)]*", outside)


def latex(text: str, _path: Path) -> Iterator[str]:
    yield from re.findall(r"\\(?:input|include|write|openin|immediate|catcode)\b.*", text)


def cells(_text: str, path: Path) -> Iterator[str]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            yield from (cell for cell in row if cell.startswith(FORMULA) and not re.fullmatch(r"[-+]?[\d.]\S*", cell))


KINDS = {".html": html, ".md": markdown, ".tex": latex, ".csv": cells}


def acting(folder: Path) -> list[str]:
    """The active content of the files below a folder, with the names of its files."""
    return [
        f"{path.name}: {what[:80]}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in KINDS
        for what in KINDS[path.suffix](path.read_text(encoding="utf-8"), path)
    ]
