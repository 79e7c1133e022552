"""The documentation: what is made from the code is well formed, and what names versions and commands is current."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import yaml

from mcpo_cli import __version__
from mcpo_cli.methods import registry
from mcpo_cli.statistics.words import ClaimWord, Word

ROOT = Path(__file__).resolve().parents[2]


def _generator(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tracked() -> set[str]:
    found = subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {Path(line).name for line in found.stdout.splitlines()}


def test_examples_of_a_verb_are_code() -> None:
    """A comment in them became a heading once."""
    for name, page in _generator("reference").verbs().items():
        headings = re.findall(r"^#+ .*", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
        assert headings
        assert name == "verbs.md" or all(re.fullmatch(r"#+ `mcpo [\w -]+`", line) for line in headings)


def test_a_setting_is_listed_once_and_keeps_to_one_line() -> None:
    pages = _generator("reference").settings()
    keys = re.findall(r"^\| (`[^|]*`) \|", "\n".join(pages.values()), re.MULTILINE)
    assert len(keys) > 100
    assert [key for key in keys if keys.count(key) > 1 or " " in key] == []


def test_a_method_has_source_formula_example_options_and_weight_on_one_page() -> None:
    gallery = _generator("gallery")
    for name in registry():
        page = gallery.described(name)
        assert re.search(r"arXiv|control|diagnostic", page), name
        assert "=" in page.partition("Needs: ")[0], f"{name} has no formula"
        assert f"$ mcpo train method={name}\n" in page
        assert "| option | default | allowed | meaning |" in page
        assert "## Weight of a prompt" in page


def test_the_readme_has_nine_hundred_words() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split()) <= 900


def test_links_lead_to_files_of_a_checkout() -> None:
    """Who reads on GitHub has no pages that `make docs` writes."""
    made = {*_generator("reference").pages()}
    pages = [*(ROOT / "docs" / name for name in _tracked() if name.endswith(".md")), *ROOT.glob("*.md")]
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\(([^)#\s:]+)[)#]", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 100
    broken = [(page.name, link) for page, link in links if not (page.parent / link).exists() or link in made]
    assert broken == []


def test_pages_written_by_hand_are_few_and_begin_with_a_command_or_a_question() -> None:
    written = [path for path in (ROOT / "docs").glob("*.md") if path.name in _tracked()]
    assert len(written) <= 26
    assert sum(len(path.read_text(encoding="utf-8").split()) for path in written) <= 28_000
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    begins = {"How to": r"```", "Explanation": r"[^\n]*\?|\*\*[^\n]*\?"}
    for heading, begin in begins.items():
        section = re.search(rf"  - {heading}:\n((?:      .*\n)+)", nav)
        assert section
        for name in re.findall(r"([\w-]+\.md)", section[1]):
            body = (ROOT / "docs" / name).read_text(encoding="utf-8").partition("\n")[2].strip()
            assert re.match(begin, body), name


def test_one_page_has_every_word_of_a_verdict() -> None:
    page = (ROOT / "docs" / "results-meaning.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([a-z ]+) \|", page, re.MULTILINE)
    assert {*get_args(Word), *get_args(ClaimWord)} <= {*words}


def test_the_citation_is_of_this_version_and_of_the_paper_in_the_readme() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format requires
    assert citation["version"] == __version__
    (paper,) = citation["references"]
    bibtex = (ROOT / "README.md").read_text(encoding="utf-8").replace("{", "").replace("}", "")
    assert paper["title"] in bibtex
    assert " and ".join(author["family-names"] for author in paper["authors"]) in bibtex
    assert paper["identifiers"][0]["value"] in bibtex


def test_workflows_call_what_there_is_at_pinned_versions() -> None:
    workflows = [
        yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")
    ]
    jobs = [job for workflow in workflows for job in workflow["jobs"].values()]
    steps = [step for job in jobs for step in job["steps"]]
    run = {step["run"] for step in steps if "run" in step}
    assert {".ci/run", "make ${{ matrix.part }}", "docker build --tag mcpo ."} <= run
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    parts = {part for job in jobs for part in job.get("strategy", {}).get("matrix", {}).get("part", ())}
    assert {"test", "check check-findings"} == parts
    made = {
        words.split(" ARGS=")[0].removeprefix("make ")
        for words in run
        if words.startswith("make ") and "$" not in words
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}: " in makefile for line in {*made, *parts} for target in line.split())
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)
    # Later steps, and the packages that they install, must not find the repository's token in the checkout.
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step.get("with", {}).get("persist-credentials") is False for step in checkouts)


def test_the_table_of_studies_lists_each_folder_and_its_entries() -> None:
    folder = ROOT / "experiments"
    listed = re.findall(r"^\| \[[\w-]+\]\(([\w-]+)/README\.md\) \|", (folder / "README.md").read_text(), re.MULTILINE)
    studies = {path.parent.name for path in folder.glob("*/README.md")}
    assert set(listed) >= studies - {"findings", "notes"}
    assert set(listed) <= studies
    entries = list(folder.glob("*/[0-9][0-9][0-9]-*.md"))
    assert entries
    assert [path for path in entries if path.name not in (path.parent / "README.md").read_text()] == []
