"""The documentation: the pages made from the code are current, and every command in it is one that mcpo takes."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

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


def test_every_page_stands_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert {page for page in pages if page not in listed} == set()
