"""The page of an evaluation in a browser."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from mcpo_cli.compare import evaluation_page
from tests.evaluations import made_up

pytestmark = pytest.mark.browser


def test_problems_are_filtered_without_javascript(browser: Browser, tmp_path: Path) -> None:
    shown = browser.new_context(java_script_enabled=False).new_page()
    shown.goto(evaluation_page.write(tmp_path, made_up(tmp_path)).as_uri())
    assert shown.locator(".problem:visible").count() == 3
    for kind, words in {"none": "none correct", "every": "all correct", "some": "some correct, some not"}.items():
        shown.get_by_role("radio", name=words, exact=True).check()
        assert shown.locator(f".problem.{kind}:visible").count() == 1
        assert shown.locator(".problem:visible").count() == 1
