"""A report in a browser: at the width of a desktop and of a phone, in dark mode, and with its search."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mcpo_cli.config.plan import Plan
from mcpo_cli.report import report
from mcpo_cli.report.builder import ArtifactBuilder

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


def test_a_phone_shows_headings_of_what_a_desktop_shows_whole(browser: Browser, address: str) -> None:
    phone, desktop = (opened(browser, address, width) for width in (390, 1400))
    assert phone.evaluate("document.documentElement.scrollHeight") < 6000
    expect(desktop.locator("#fig5a img")).to_be_visible()
    expect(phone.locator("#fig5a img")).to_be_hidden()
    expect(phone.locator("#table1 img")).to_be_visible()
    phone.goto(f"{address}#fig5a")
    expect(phone.locator("#fig5a img")).to_be_visible()
    phone.close()
    desktop.close()


def test_a_click_on_a_heading_sorts_numbers_as_numbers(browser: Browser, address: str) -> None:
    page = opened(browser, address, 1400)
    table = page.locator("#table1 table").first
    shown = "cells => cells.map(cell => parseFloat(cell.textContent))"
    for _ in range(2):
        table.get_by_role("columnheader", name="change").click()
    column = table.locator("tbody tr td:nth-child(4)").evaluate_all(shown)
    assert column == sorted(column, reverse=True)
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
