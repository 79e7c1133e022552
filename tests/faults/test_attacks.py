"""Files of others (`attacks.py`) give a message or a result in time, without text that a terminal or browser obeys."""

import csv
import json
import re
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.config.plan import from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.report import report
from mcpo_cli.report.builder import ArtifactBuilder
from tests.cli.conftest import InProcess
from tests.fakes import write_runs
from tests.faults.attacks import AREAS, ODD, Attack

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


SECONDS = 60.0
"""CPU time of a command."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that a terminal obeys."""
ARTIFACT = "table1"
CASES = {f"{area}: {name}": attack for area, attacks in AREAS.items() for name, attack in attacks.items()}


def prepared(attack: Attack, folder: Path) -> list[str]:
    """The words of the command, with the paths of the files written for it."""
    for name, content in attack.files.items():
        path = folder / name
        if callable(content):
            content(path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return [
        re.sub(rf"^(.*=)?({'|'.join(map(re.escape, attack.files))})$", rf"\1{folder}/\2", word) for word in attack.words
    ]


SLOW = {
    *(f"grading: {name}" for name in ("odd values", "odd texts", "a gzip bomb of one line")),
    *(f"logs: {name}" for name in ("1 000 filters", "a line of 100 MB", "an .eval that is a bomb")),
    *(f"YAML: {name}" for name in ("a megabyte as an arm", "a sweep of 10 000 runs", "100 MB of arms", "2 000 arms")),
    *("data: odd problems", "data: endless rows in a small file"),
}


@pytest.mark.parametrize(
    "attack", [pytest.param(one, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, one in CASES.items()]
)
def test_what_others_send(attack: Attack, here: InProcess, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    words = prepared(attack, folder)
    began, before = time.process_time(), set(folder.rglob("*"))
    done = here(*words)
    assert time.process_time() - began < SECONDS
    said = done.stdout + done.stderr
    assert done.returncode == attack.code, said[-3000:]
    assert len(re.findall("^error:", done.stderr, re.MULTILINE)) == (done.returncode > 0), done.stderr[-3000:]
    assert not CONTROL.search(said), ascii(CONTROL.findall(said))
    assert len(done.stderr) < 3000
    assert set(folder.rglob("*")) == before, "it wrote beside the files that it read"
    written = {path.name for path in tmp_path.iterdir()} - {"theirs"}
    assert written <= {"home", "reports"}, "it wrote elsewhere"
    assert [what for name in written for what in acting(tmp_path / name)] == []


RECORDED: dict[str, Callable[[str], dict[str, Any]]] = {
    "texts": lambda text: {
        "commit": text,
        "dirty": True,
        "machine": {"processor": text, "cores": 1, "memory_gib": 1, "gpus": [text]},
        "packages": {text: "1", "torch": text},
        "python": text,
    },
    "other types": lambda text: {
        "commit": [text],
        "packages": [1],
        "machine": {"gpus": {text: 1}},
        "python": {text: 1},
    },
}
"""The facts on the machine in a run's provenance."""


@pytest.mark.slow
@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
def test_a_report_of_runs_that_somebody_else_trained(
    recorded: Callable[[str], dict[str, Any]], mcpo_home: Path
) -> None:
    """The report as HTML and Markdown, with an odd text from each run."""
    words = ["scale=smoke", "model=toy-s", "seed=0,1,2,3,4,5"]
    plan = from_suite(ARTIFACT, words, "mcpo reproduce all --built")
    write_runs(plan)
    for run, text in zip(plan.runs, ODD.values(), strict=False):
        path = run_dir(run.spec.run_id) / "attempt_1" / "provenance.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **recorded(text)}))
    assert len(plan.runs) >= len(ODD)
    builder = ArtifactBuilder({ARTIFACT: plan}, mcpo_home / "reports", "smoke", words)
    report.write(report.gather(builder, [ARTIFACT]), builder.folder)
    ours = re.compile(r"report\.md: </?(a|details|summary)\b")
    assert [what for what in acting(builder.folder) if not ours.match(what)] == []
