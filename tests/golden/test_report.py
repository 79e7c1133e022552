"""The report from made-up runs: complete, self-contained, escaped, and equal to the byte when it is made again."""

import base64
import dataclasses
import io
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from mcpo_cli.config.plan import Plan, PlannedRun, from_suite
from mcpo_cli.errors import MissingRuns, RunFailed
from mcpo_cli.home import run_dir
from mcpo_cli.render import pages
from mcpo_cli.render.product import Product
from mcpo_cli.report import artifacts, build, builder, report
from mcpo_cli.report.builder import ArtifactBuilder
from mcpo_cli.report.report import ReportContent
from tests.fakes import ThisProcess, write_runs

OVERRIDES = ["scale=smoke", "model=toy-s", "seed=0,1"]
NAMES = ["overview", "table1", "fig1", "fig2a", "fig5a"]
VOID = {"meta", "img", "br", "input"}
DATE = "written on "


class Page(HTMLParser):
    """A page as a browser reads it: text, links, sources and anchors; raises an error if tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: dict[str, list[str]] = {"href": [], "src": [], "id": []}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def plans(names: list[str] = NAMES) -> dict[str, Plan]:
    return {suite: from_suite(suite, OVERRIDES, "mcpo reproduce all") for suite in artifacts.suites(names)}


def gathered(home: Path, found: dict[str, Plan], names: list[str] = NAMES, folder: str = "reports") -> ReportContent:
    return report.gather(ArtifactBuilder(found, home / folder, "smoke", OVERRIDES), names)


@pytest.fixture(scope="module")
def home(module_home: Path) -> Path:
    """A home with the runs of table1, the first from a dirty tree, the second from another commit, and no others."""
    plan = plans()["table1"]
    write_runs(plan)
    for run, number in zip(plan.runs, "01", strict=False):
        provenance = {"commit": number * 40, "dirty": number == "0"}
        (run_dir(run.spec.run_id) / "attempt_1" / "provenance.json").write_text(json.dumps(provenance))
    return module_home


HELPERS = builder.helpers


@pytest.fixture(scope="module")
def here() -> Iterator[None]:
    """Artifacts are drawn in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "helpers", ThisProcess)
        yield


@pytest.fixture(scope="module")
def content(home: Path, here: None) -> ReportContent:
    found = gathered(home, plans())
    report.write(found, home / "reports" / "smoke")
    return found


@pytest.fixture(scope="module")
def folder(content: ReportContent, home: Path) -> Path:
    return home / "reports" / "smoke"


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_a_report_is_written_once_however_often_its_content_changes(content: ReportContent, home: Path) -> None:
    folder = home / "once"
    folder.mkdir()
    for name in ("one", "other"):
        report.write(dataclasses.replace(content, facts={**content.facts, "content": name}), folder)
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "report.md"]


def test_the_conclusion_comes_first_then_a_figure_then_the_limits(content: ReportContent) -> None:
    text = report.html(content, "now")
    (overview,) = content.summary
    assert overview.built
    places = [text.index(part) for part in ('class="conclusion"', "<figure", "<strong>Limits", "<nav", "<main")]
    assert places == sorted(places)
    assert content.conclusion[0] == overview.built.page.sentence


def test_only_what_holds_for_all_tests_together_stands_out() -> None:
    verdicts = ("supported (Holm)", "supported", "contradicted", "unresolved", "0.31")
    assert [("holds" in pages.kind(verdict, False).split()) for verdict in verdicts] == [True] + 4 * [False]


@pytest.mark.slow
def test_every_artifact_stands_there_built_or_not(page: Page, content: ReportContent, folder: Path) -> None:
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert [name for name in page.attributes["id"] if name in NAMES] == NAMES
    for piece in content.pieces:
        assert (piece.artifact.title if piece.name == "overview" else piece.heading) in page.text
        assert f'<a id="{piece.name}"></a>' in markdown
        if piece.built:
            assert f"Rebuild: {piece.command}" in page.text
            assert " ".join(piece.built.record["sentence"].split()) in page.text
            for file in piece.built.record["files"]:
                assert file in page.attributes["href"]
                assert f"]({file})" in markdown
    assert [piece.name for piece in content.lacking] == ["fig2a"]
    missing = "mastery: 2 of 2 runs are not done; mcpo reproduce fig2a scale=smoke model=toy-s seed=0,1"
    assert f"not built: {missing}" in page.text
    assert f"**not built:** {missing.replace('mcpo', '`mcpo')}`" in markdown


def test_what_a_reader_must_know_stands_above_the_contents(page: Page, content: ReportContent, home: Path) -> None:
    dirty, other, *_ = (run.spec.run_id for run in plans()["table1"].runs)
    head, rest = page.text.split("Contents", maxsplit=1)
    assert f"1 of 4 runs: trained from a working tree with uncommitted changes ({dirty})" in head
    assert f"runs of several commits: {'0' * 12} (3), {'1' * 12} (1)" in head
    assert "not built, 1 of 5: fig2a" in head
    (overview,) = content.summary
    assert overview.built
    assert overview.built.page.sentence in head
    assert page.attributes["alt"][0] == overview.built.page.sentence
    assert f"content {content.facts['content']}" in head
    assert "runs 4 models toy-s regimes drift seeds 0, 1" in head
    assert f"{dirty} DAPO toy-s {'0' * 12} dirty 0" in rest
    assert f"{other} DAPO toy-s {'1' * 12} clean 1" in rest


def test_the_page_needs_nothing_from_outside(page: Page, folder: Path) -> None:
    assert page.tags.keys() & {"link", "iframe", "object", "base"} == set()
    # The one script is that of all pages.
    assert page.tags["script"] == 1
    script = (Path(pages.__file__).parent / "page.js").read_text(encoding="utf-8").strip()
    assert f"<script>\n{script}</script>" in (folder / "report.html").read_text(encoding="utf-8")
    for link in page.attributes["href"]:
        # An anchor of the page, or a file in its folder.
        assert link[1:] in page.attributes["id"] if link.startswith("#") else (folder / link).is_file()
    style = "".join(text for text in page.texts if "{" in text)
    assert re.findall(r"url\(|@import", style) == []
    assert all(source.startswith("data:image/png;base64,") for source in page.attributes["src"])


def test_pictures_are_those_of_the_files(page: Page, content: ReportContent) -> None:
    pictures = [base64.b64decode(source.partition(",")[2], validate=True) for source in page.attributes["src"]]
    files = [path for piece in content.pieces if piece.built and (path := piece.built.path(".png"))]
    assert [path.name for path in files] == ["overview.png", "table1.png", "fig1.png", "fig5a.png"]
    assert pictures == [path.read_bytes() for path in files]
    for picture, width, height in zip(pictures, page.attributes["width"], page.attributes["height"], strict=True):
        rows, columns, _ = image.imread(io.BytesIO(picture)).shape
        assert (int(width), int(height)) == (round(columns / 1.4), round(rows / 1.4))


def test_markdown_tables_are_whole_and_links_lead_to_files(folder: Path) -> None:
    text = (folder / "report.md").read_text(encoding="utf-8")
    anchors = set(re.findall(r'<a id="([^"]+)"></a>', text))
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert {link[1:] for link in links if link.startswith("#")} == anchors
    assert all((folder / link).is_file() for link in links if not link.startswith("#"))
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert text.count("<details>") == text.count("</details>") == len(NAMES)


@pytest.mark.slow
def test_two_builds_from_nothing_differ_in_the_date_line_alone(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process drew the first, helper processes draw the second."""
    monkeypatch.setattr(builder, "helpers", HELPERS)
    again = gathered(home, plans(), folder="again")
    for path in report.write(again, home / "again" / "smoke"):
        one, two = (
            found.read_text(encoding="utf-8").splitlines()
            for found in (folder / path.name, home / "again/smoke" / path.name)
        )
        dates = [line for line in two if DATE in line]
        assert len(dates) == (0 if path.suffix == ".json" else 1)
        assert [line for line in one if DATE not in line] == [line for line in two if DATE not in line]
    for built in (piece.built for piece in again.pieces if piece.built):
        assert [path.read_bytes() for path in built.paths] == [
            (folder / path.name).read_bytes() for path in built.paths
        ]
    monkeypatch.undo()
    assert report.html(again, "now") == report.html(gathered(home, plans(), folder="again"), "now")


@pytest.mark.slow
def test_a_disk_that_takes_nothing_and_a_process_that_is_killed_are_errors_of_the_artifact(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deadly(Figure):
        def savefig(self, *_: object, **__: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    product = Product("", "", pd.DataFrame(), figure=Deadly())
    monkeypatch.setitem(
        artifacts.registry(), "fig1", dataclasses.replace(artifacts.registry()["fig1"], build=lambda _: product)
    )
    monkeypatch.setattr(builder, "helpers", HELPERS)
    (fig1,) = gathered(home, {}, ["fig1"], folder="killed").lacking
    assert "a helper process was killed" in fig1.why
    monkeypatch.setattr(builder, "helpers", ThisProcess)
    (home / "full").write_text("a file where the folder should be")
    (table1,) = gathered(home, plans(["table1"]), ["table1"], folder="full").lacking
    assert "cannot be written" in table1.why
    assert "make room" in str(table1.errors[0].fix)


def test_the_record_names_what_the_report_was_made_from(folder: Path, content: ReportContent) -> None:
    record = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert record["runs"] == sorted(run.spec.run_id for run in plans()["table1"].runs)
    assert list(record["artifacts"]) == ["overview", "table1", "fig1", "fig5a"]
    for name, about in record["artifacts"].items():
        beside = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        assert about == {"inputs": beside["inputs"], "code": beside["code"]}
    assert record["not_built"]["fig2a"]["why"] == "mastery: 2 of 2 runs are not done"


@pytest.mark.usefixtures("here")
def test_nothing_in_a_name_is_markup(home: Path) -> None:
    hostile = '<script>1</script> & "x" |<b>*'
    plan = plans()["table1"]
    runs = tuple(PlannedRun(hostile if run.arm == "MCPO" else run.arm, run.spec) for run in plan.runs)
    content = gathered(home, {"table1": dataclasses.replace(plan, runs=runs)}, ["fig5a"], folder="hostile")
    found = Page(report.html(content, "now"))
    assert (found.tags["script"], found.tags["b"]) == (1, 0)
    assert hostile in found.text
    markdown = report.markdown(content, "now")
    assert re.findall(r"(?<!\\)<(?!/?(?:a|details|summary)\b)", markdown) == []


@pytest.mark.usefixtures("content")
def test_a_diagnostic_is_there_if_its_runs_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fig5a", "fig2a"):
        diagnostic = dataclasses.replace(artifacts.registry()[name], section="Diagnostics")
        monkeypatch.setitem(artifacts.registry(), name, diagnostic)
    found = gathered(home, plans())
    shown = {heading: [piece.name for piece in pieces] for heading, pieces in found.sections.items()}
    assert shown == {"Tables and figures of the paper": ["table1", "fig1"], "Diagnostics": ["fig5a"]}
    assert report.complaint(found, "mcpo reproduce all", {}) is None


@pytest.mark.slow
@pytest.mark.usefixtures("content")
def test_an_artifact_that_cannot_be_built_keeps_no_other_from_being_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(data: object) -> None:
        raise RunFailed("no such rows", fix="mcpo probe hinge")

    broken = dataclasses.replace(artifacts.registry()["fig1"], build=fails)
    monkeypatch.setitem(artifacts.registry(), "fig1", broken)
    content = gathered(home, plans(), folder="broken")
    assert [(piece.name, piece.why) for piece in content.lacking] == [
        ("fig1", "no such rows"),
        ("fig2a", "mastery: 2 of 2 runs are not done"),
    ]
    error = report.complaint(content, "mcpo reproduce all", {})
    assert isinstance(error, RunFailed)
    assert error.fix == "mcpo probe hinge"
    monkeypatch.undo()
    others = report.complaint(gathered(home, plans()), "mcpo reproduce all", {})
    assert isinstance(others, MissingRuns)
    assert others.fix == "mcpo reproduce all"


@pytest.mark.parametrize(
    ("words", "folder"), [([], "toy"), (["scale=smoke"], "smoke"), (["model=toy-s,smollm2-135m"], "toy+laptop")]
)
def test_the_folder_has_the_name_of_the_scale_that_is_chosen(words: list[str], folder: str) -> None:
    """Also where a suite has another scale of its own, as that of SmolLM2 does."""
    made = {suite: from_suite(suite, words, "mcpo reproduce all") for suite in ("table1", "lm")}
    assert build.builder(made, words).folder.name == folder
