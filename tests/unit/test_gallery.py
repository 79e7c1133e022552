"""The pages of methods equal what their script writes, and the atlas on them has its committed rows."""

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mcpo_cli.analysis import atlas as tables
from mcpo_cli.config import plan
from mcpo_cli.measures import atlas
from mcpo_cli.methods import get, registry
from tests.unit.test_estimators import TRAIN


def loaded() -> Any:
    """`.ci/gallery.py`, which is not in a package."""
    spec = importlib.util.spec_from_file_location("gallery", Path(__file__).parents[2] / ".ci" / "gallery.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gallery = loaded()
ROWS = gallery.estimates()


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(gallery.pages())


@pytest.mark.slow
def test_the_pages_and_the_curves_of_their_figures_are_current(pages: dict[str, str]) -> None:
    files = [*gallery.DOCS.glob("methods*.md"), *(gallery.DOCS / "methods").glob("*.md")]
    shown = {path.relative_to(gallery.DOCS).as_posix(): path.read_text() for path in files}
    assert pages == shown, "make docs"


@pytest.mark.slow
def test_a_page_of_a_method_has_one_heading(pages: dict[str, str]) -> None:
    """A line of a docstring does not become a second one."""
    for name, page in pages.items():
        if name.startswith("methods/"):
            assert re.findall(r"^#.*", page, re.MULTILINE) == [f"# {Path(name).stem}"]


@pytest.mark.slow
def test_curves_that_the_page_shows_are_the_methods_own() -> None:
    up, down = gallery.clipping(1), gallery.clipping(-1)
    assert dict(up["grpo"])[gallery.RATIOS[-1]] == 0 == dict(down["grpo"])[gallery.RATIOS[0]]
    ratio = gallery.RATIOS[40]
    assert abs(dict(up["grpo"])[ratio] - ratio) < 1e-6
    assert abs(dict(down["gpg"])[ratio] + 1) < 1e-6
    assert max(weight for _, weight in gallery.weights()["mcpo"]) == pytest.approx(0.5)


def test_every_method_and_condition_has_a_row() -> None:
    expected = {
        (name, condition.rollouts, condition.stale, condition.rounding, condition.correction)
        for name in registry()
        for condition in atlas.conditions()
        if atlas.fitting(get(name), TRAIN, condition.rollouts)
    }
    columns = ["arm", "rollouts", "stale", "rounding", "correction"]
    assert sorted(ROWS[columns].itertuples(index=False, name=None)) == sorted(expected)


def test_committed_rows_that_were_counted_are_what_the_code_gives() -> None:
    chosen = ROWS[(ROWS["batches"] == 0) & (ROWS["rollouts"] == 4) & (ROWS["stale"] == 4)]
    assert len(chosen) > 10
    for committed in chosen.to_dict("records"):
        found = atlas.row(get(committed["arm"]), TRAIN, atlas.Condition(4, 4))
        assert found is not None
        for name in ("gain", "cosine_mean", "noise", "cosine"):
            # Pass@4 of four rollouts has no advantage, hence no direction.
            expected = pytest.approx(committed[name], rel=1e-3, abs=1e-3, nan_ok=committed["arm"] == "passk")
            assert found[name] == expected, (committed["arm"], name)


@pytest.mark.slow
def test_committed_rows_of_trained_arms_that_were_counted_are_what_the_code_gives() -> None:
    rows = pd.read_csv(gallery.ARMS)
    rows = rows[(rows["batches"] == 0) & (rows["stale"] == 4)]
    assert {*rows["suite"]} == {"methods-ratio", "methods-weights", "methods-baselines", "methods-small-groups"}
    for suite, own in rows.groupby("suite"):
        arms = {cell.arm: cell.spec for cell in plan.from_suite(str(suite), ["seed=0"], "").cells}
        for committed in own.to_dict("records"):
            spec = arms[committed["arm"]]
            found = atlas.row(spec.method, spec.train, atlas.Condition(committed["rollouts"], 4))
            assert found is not None
            assert found["size"] == committed["size"] <= spec.train.rollouts
            assert found["cosine"] == pytest.approx(committed["cosine"], rel=1e-3), committed["arm"]


def test_the_table_has_the_numbers_of_the_rows() -> None:
    grid = tables.grid(ROWS)
    line = dict(zip(grid.header, next(row for row in grid.rows if row[0] == "passk"), strict=True))
    assert line["cos G=2"] == "-"
    row = tables.at(ROWS[ROWS["arm"] == "passk"], 16, 0).iloc[0]
    assert (line["gain"], line["noise"], line["G=16"]) == tuple(
        f"{row[name]:.2f}" for name in ("gain", "noise", "cosine")
    )
    row = tables.at(ROWS[ROWS["arm"] == "passk"], 16, 0, atlas.ROUNDING, "sequence-truncate").iloc[0]
    assert line["sequence TIS"] == f"{row['cosine_mean']:.2f}"


def test_the_figure_has_every_arm_and_at_most_four_series_a_panel() -> None:
    figure = tables.figure(ROWS)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][-1] == (
        tables.at(ROWS, 16, 0).sort_values("cosine")["arm"].iloc[-1]
    )
    for axes in figure.axes:
        assert len([line for line in axes.get_lines() if not line.get_label().startswith("_")]) == 4
    assert figure.get_figwidth() <= 5.5


def test_arms_without_groups_of_that_size_are_said_to_have_none() -> None:
    small = ROWS[(ROWS["arm"] == "grpo") & (ROWS["rollouts"] == 2)]
    assert tables.product("Atlas", small).sentence == "No arm has groups of G = 16."


def test_what_is_said_of_the_prediction_is_the_correlation_of_committed_rows() -> None:
    arms, rows = pd.read_csv(gallery.ARMS), pd.read_csv(gallery.RESULTS / "methods-ratio.csv")
    own = arms[(arms["suite"] == "methods-ratio") & (arms["stale"] == 4)]
    end = rows[(rows["block"] == "measured") & (rows["tier"] == "average") & (rows["at"] == "steps")]
    end = end[end["metric"] == "pass@1"].set_index("arm")["mean"]
    x, y = own["cosine"].rank(), end[own["arm"]].rank().to_numpy()
    expected = float(((x - x.mean()) * (y - y.mean())).sum()) / math.sqrt(
        float(((x - x.mean()) ** 2).sum() * ((y - y.mean()) ** 2).sum())
    )
    line = next(line for line in gallery.correlations() if "methods-ratio" in line)
    assert f"| {len(own)} | {expected:.2f} | - |" in line
