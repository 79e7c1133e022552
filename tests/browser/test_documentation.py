"""The documentation in a browser: pages that can be read to the end, on a desktop and on a phone."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
TALLEST = 15_000
"""Largest height of a page in pixels, at the width of a desktop or of a phone; longer pages must be split."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--no-directory-urls", "--site-dir", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("width", [1500, 400])
def test_no_page_is_too_long_or_wider_than_the_screen(browser: Browser, site: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 1000})
    page, sizes = context.new_page(), dict[str, tuple[int, int]]()
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri(), wait_until="load")
        size = "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
        sizes[path.relative_to(site).as_posix()] = tuple(page.evaluate(size))
    context.close()
    assert len(sizes) > 80
    assert {name: wide for name, (_, wide) in sizes.items() if wide > width} == {}
    assert {name: tall for name, (tall, _) in sizes.items() if tall > TALLEST} == {}
