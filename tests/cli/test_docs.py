"""The documentation: the pages made from the code are current, and every command in it is one that mcpo takes."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcpo_cli import __version__

ROOT = Path(__file__).resolve().parents[2]


def _reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", ROOT / ".ci" / "reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["verbs.md", "settings.md"])
def test_a_page_made_from_the_code_is_current(page: str) -> None:
    """If not: make docs."""
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == _reference().PAGES[page]()


def test_the_citation_is_of_this_version_and_of_the_paper_in_the_readme() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format requires
    assert citation["version"] == __version__
    (paper,) = citation["references"]
    bibtex = (ROOT / "README.md").read_text(encoding="utf-8").replace("{", "").replace("}", "")
    assert paper["title"] in bibtex
    assert " and ".join(author["family-names"] for author in paper["authors"]) in bibtex
    assert paper["identifiers"][0]["value"] in bibtex


def test_workflows_call_what_there_is() -> None:
    steps = [
        step["run"]
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert ".ci/run" in steps
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    targets = [step.removeprefix("make ") for step in steps if step.startswith("make ")]
    assert targets == ["setup", "docs"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}: " in makefile for target in targets)


def test_every_page_stands_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert {page for page in pages if page not in listed} == set()
