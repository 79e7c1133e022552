"""A store with made-up runs and built results, `mcpo ui` over it, and the system's Chromium without a window."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan
from mcpo_cli.report.build import upload_artifacts
from mcpo_cli.report.builder import BuiltArtifact
from mcpo_cli.trackers import resolve
from mcpo_cli.trackers.mlflow import Store
from tests import fakes
from tests.store_runs import free_port, made_up

CHROMIUM = shutil.which("chromium")
WAIT = 60_000
"""Milliseconds within which a page must show its content, on a busy machine."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """MCPO_HOME, in an environment that names no other store."""
    path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCPO_HOME", str(path))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield path


@pytest.fixture(scope="session")
def plan(home: Path) -> Plan:
    """The plan of a small Table 1, whose runs are in the store."""
    table = plans.from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0,1"], "mcpo reproduce table1")
    made_up(table)
    uri = resolve("")
    assert uri
    Store(uri).ingest(table)
    return table


@pytest.fixture(scope="session")
def built(plan: Plan, home: Path) -> dict[str, BuiltArtifact]:
    """The table and one of its figures, in the store."""
    found = {name: fakes.build(name, plan, home) for name in ("table1", "fig5a")}
    upload_artifacts([(plan, list(found.values()))])
    return found


@pytest.fixture(scope="session")
def ui(plan: Plan, built: dict[str, BuiltArtifact]) -> Iterator[str]:
    """The address that `mcpo ui` prints, over the store with `plan` and `built` in it."""
    command = [sys.executable, "-m", "mcpo_cli.main", "ui", "--json", "--port", str(free_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as server:
        assert server.stdout
        document = b""
        while not document.endswith(b"\n}\n"):
            line = server.stdout.readline()
            if not line:
                pytest.fail(f"mcpo ui did not start: {server.communicate()[1].decode()}")
            document += line
        yield json.loads(document)["url"]
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=120)
        assert server.returncode == 0


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.fail("these tests look at MLflow through Chromium, which is not here: make test-browser installs it")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, ui: str, tmp_path: Path) -> Iterator[Page]:
    """The page that the address of `mcpo ui` opens; its last state is `page.png` in `tmp_path`."""
    context = browser.new_context(viewport={"width": 1600, "height": 1200})
    context.set_default_timeout(WAIT)
    opened = context.new_page()
    opened.goto(ui)
    yield opened
    for number, shown in enumerate(context.pages):
        shown.screenshot(path=tmp_path / f"page{number}.png")
    context.close()
