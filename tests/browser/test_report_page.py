"""A report in a browser: at the width of a desktop and of a phone, in dark mode, and with its search."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mcpo_cli.config.plan import Plan
from mcpo_cli.report import report
from mcpo_cli.report.artifacts import ArtifactBuilder

pytestmark = pytest.mark.browser

NAMES = ["overview", "table1", "fig5a"]


@pytest.fixture(scope="module")
def address(plan: Plan, home: Path) -> str:
    folder = home / "reports" / "smoke"
    report.write(report.gather(ArtifactBuilder({"table1": plan}, home / "reports", "smoke"), NAMES), folder)
    return (folder / "report.html").as_uri()


def opened(browser: Browser, address: str, width: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light")
    page.goto(address)
    return page


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_wider_than_the_screen_but_what_scrolls_in_a_box(browser: Browser, address: str, width: int) -> None:
    page = opened(browser, address, width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    cut = page.locator("body *").evaluate_all(
        "all => all.filter(e => e.getBoundingClientRect().right > innerWidth + 1"
        " && !e.closest('.scroll, figure')).map(e => e.outerHTML.slice(0, 80))"
    )
    assert cut == []
    page.close()


def test_the_first_screen_has_a_figure_and_the_contents_at_its_side(browser: Browser, address: str) -> None:
    page = opened(browser, address, 1400)
    figure, contents = page.locator("header img").bounding_box(), page.locator("nav").bounding_box()
    assert figure
    assert contents
    assert figure["y"] + figure["height"] < 900
    assert contents["x"] + contents["width"] < figure["x"]
    page.close()


def test_the_search_leaves_what_has_every_word(browser: Browser, address: str) -> None:
    page = opened(browser, address, 1400)
    page.get_by_role("searchbox").fill("MASTERED figure")
    expect(page.locator("#fig5a")).to_be_visible()
    expect(page.locator("#table1")).to_be_hidden()
    expect(page.get_by_role("link", name="Table 1: DAPO against MCPO")).to_have_count(0)
    expect(page.locator("#found")).to_have_text("1 of 2")
    page.get_by_role("searchbox").fill("")
    expect(page.locator("#table1")).to_be_visible()
    page.close()


def test_without_javascript_there_is_no_search(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    expect(page.locator("#search")).to_be_hidden()
    expect(page.locator("#table1")).to_be_visible()
    context.close()


def test_in_the_dark_no_colour_of_a_picture_changes_its_meaning(browser: Browser, address: str) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(address)
    drawn = page.locator("#fig5a img").evaluate("image => getComputedStyle(image).filter")
    assert "invert" not in drawn
    assert "hue-rotate" not in drawn
    page.close()


def test_the_switch_makes_it_dark(browser: Browser, address: str) -> None:
    page = opened(browser, address, 1400)
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.get_by_label("switch dark and light").check()
    assert page.evaluate(background) == "rgb(21, 24, 28)"
    page.close()
