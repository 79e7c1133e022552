"""The pages of a comparison of logs and of an evaluation: on a phone, filtered, and without JavaScript."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Browser, expect

from mcpo_cli.compare import evaluation_page, output
from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.log import Side, checked
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.subjects import Answer
from tests.evaluations import made_up

pytestmark = pytest.mark.browser
SCRIPT = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>" + "long" * 200


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    sides = []
    for name, right in (("base", np.arange(40) < 20), ("new", (np.arange(40) < 36) & (np.arange(40) > 3))):
        samples = pd.DataFrame({"benchmark": "sums", "problem": [f"q{i}" for i in range(40)], "correct": right})
        sides.append(Side(name, (checked(Path(name), samples.assign(response=SCRIPT, answer=name)),)))
    folder = tmp_path_factory.mktemp("page")
    output.write(Answer(of_logs(sides, Question()), Question(), sides=sides), folder, "mcpo compare base new")
    return (folder / "comparison.html").as_uri()


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_wider_than_the_screen_and_no_answer_runs(browser: Browser, address: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    page.locator(".flip summary").first.click()
    expect(page.locator(".flip pre").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.title() == "new against base"
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    page.close()


def test_the_filter_leaves_what_has_every_word(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    moved = "sums: 16 gained, 4 lost, 20 with the same score and another answer"
    expect(page.get_by_text(f"{moved}.")).to_be_visible()
    page.get_by_text(f"All problems that changed ({moved}) (20 rows)").click()
    problems = page.locator("#flips ~ details tbody tr td:nth-child(3)").all_inner_texts()
    assert problems == [f"q{i}" for i in (*range(4), *range(20, 36))]
    expect(page.locator(".flip:visible")).to_have_count(10)
    page.get_by_role("searchbox").fill("LOST sums")
    expect(page.locator("#found")).to_have_text("4 of 20")
    expect(page.locator(".flip:visible")).to_have_count(4)
    page.close()


def test_problems_are_filtered_without_javascript(browser: Browser, tmp_path: Path) -> None:
    shown = browser.new_context(java_script_enabled=False).new_page()
    shown.goto(evaluation_page.write(tmp_path, made_up(tmp_path)).as_uri())
    assert shown.locator(".problem:visible").count() == 3
    for kind, words in {"none": "none correct", "every": "all correct", "some": "some correct, some not"}.items():
        shown.get_by_role("radio", name=words, exact=True).check()
        assert shown.locator(f".problem.{kind}:visible").count() == 1
        assert shown.locator(".problem:visible").count() == 1
