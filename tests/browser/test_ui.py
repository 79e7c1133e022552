"""Runs, curves and results in MLflow's UI."""

from collections import Counter

import pytest
from playwright.sync_api import Locator, Page, expect

from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan
from mcpo_cli.report.builder import BuiltArtifact
from mcpo_cli.trackers import descriptions, resolve, views
from mcpo_cli.trackers.mlflow import Store

pytestmark = pytest.mark.browser

WAIT = 60_000


@pytest.fixture
def runs(page: Page) -> Page:
    """The runs of the experiment, with which the UI opens."""
    expect(page.get_by_role("heading", name="Runs")).to_be_visible(timeout=WAIT)
    return page


@pytest.fixture
def parent(runs: Page, plan: Plan) -> Page:
    """The page of the plan's parent run."""
    runs.get_by_role("link", name=descriptions.plan_name(plan)).click()
    expect(runs.get_by_role("heading", name=descriptions.plan_name(plan))).to_be_visible(timeout=WAIT)
    return runs


def points(chart: Locator) -> int:
    """Waits for points in a chart; returns their number."""
    expect(chart.locator("path.point").first).to_be_visible(timeout=WAIT)
    return chart.locator("path.point").count()


def test_a_parent_names_its_children_and_its_command(parent: Page, plan: Plan) -> None:
    names = [
        f"{series} {run.spec.seeds}" for run, series in zip(plan.runs, descriptions.series(plan).values(), strict=True)
    ]
    assert Counter(names) == Counter(f"{arm} toy-s seed {seed}" for arm in ("DAPO", "MCPO") for seed in (0, 1))
    for name in names:
        expect(parent.get_by_role("link", name=name)).to_be_visible(timeout=WAIT)
    expect(parent.get_by_text(plans.about("table1")[1])).to_be_visible()
    # In the description, and as MLflow's Source.
    expect(parent.get_by_text(plan.command, exact=True)).to_have_count(2)
    parent.get_by_role("link", name="MCPO toy-s seed 1").click()
    expect(parent.get_by_role("heading", name="MCPO toy-s seed 1")).to_be_visible(timeout=WAIT)


def test_it_opens_with_what_is_compared_and_without_an_assistant(runs: Page, plan: Plan) -> None:
    name = descriptions.plan_name(plan)
    expect(runs.get_by_role("link", name=name)).to_be_visible(timeout=WAIT)
    for column in ("verdict", "arm", "model", "seed", "before", "after", "change"):
        expect(runs.get_by_role("columnheader", name=column, exact=True).first).to_be_visible()
    expect(runs.get_by_text("Welcome to MLflow Assistant")).to_have_count(0)


def test_the_charts_of_a_plan_show_all_its_runs_by_series(page: Page, ui: str, plan: Plan) -> None:
    uri = resolve("")
    assert uri
    store = Store(uri)
    page.goto(ui + views.address(store.experiment(plan.suite), store.parent(plan)))
    for run in plan.runs:
        name = f"{descriptions.series(plan)[run.spec.run_id]} {run.spec.seeds}"
        expect(page.get_by_role("link", name=name).first).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("Group: MCPO")).to_be_visible()
    expect(page.get_by_text("1 held-out accuracy").first).to_be_visible()
    assert points(page.locator(".js-plotly-plot").first) >= 1


def test_results_are_displayed_beside_their_runs(parent: Page, built: dict[str, BuiltArtifact]) -> None:
    parent.get_by_role("tab", name="Artifacts").click()
    parent.get_by_text("reports", exact=True).click()
    parent.get_by_text("table1.md", exact=True).click()
    expect(parent.get_by_text(built["table1"].record["sentence"])).to_be_visible(timeout=WAIT)
    parent.get_by_text("fig5a.png", exact=True).click()
    image = parent.locator("img[src*='fig5a'], img[src^='blob:']").first
    expect(image).to_be_visible(timeout=WAIT)
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 500
