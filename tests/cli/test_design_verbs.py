"""A user's suite with a design: trained, mapped, tested along a quantity, and within a time budget."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from mcpo_cli.config.plan import Plan, from_suite
from tests import fakes
from tests.cli.conftest import InProcess
from tests.fakes import write_runs

POINTS = 16
QUICK = ("scale=smoke", "compute.tracking_uri=offline")
SUITE = {
    "title": "Where does the hinge pay?",
    "baseline": "plain",
    "arms": {"hinged": [*QUICK, "method=mcpo"], "plain": [*QUICK, "method=dapo", "method.dynamic_sampling=false"]},
    "design": {
        "points": POINTS,
        "factors": {"train.lr": {"low": 1e-4, "high": 1e-3, "log": True}, "method.delta": {"levels": [0.001, 0.01]}},
        "blocks": {"seed": [0, 1, 2]},
    },
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SUITE, sort_keys=False))
    return path


def train(suite: Path, points: int = POINTS, *, rise: float = 0.0, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Made-up runs of the first points; the hinge gains up to `rise` with the learning rate."""
    plan = from_suite(str(suite), [], "")
    hardest = fakes.TIERS["k7-8"]
    for cell in plan.cells:
        assert cell.point is not None
        if cell.point < points:
            gain = rise * cell.spec.train.lr / 1e-3 if cell.arm == "hinged" else 0.0
            monkeypatch.setitem(fakes.TIERS, "k7-8", hardest + gain)
            write_runs(dataclasses.replace(plan, cells=(cell,)), probed=True)
    monkeypatch.setitem(fakes.TIERS, "k7-8", hardest)
    return plan


@pytest.mark.slow
def test_a_design_is_reproduced_as_a_map_of_its_points(
    here: InProcess, suite: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = train(suite, monkeypatch=monkeypatch)
    made = here.json("reproduce", str(suite))["artifacts"]["mine"]
    assert len(made["rows"]) == len(plan.cells) == 2 * POINTS
    assert {(row["point"], row["arm"]) for row in made["rows"]} == {
        (point, arm) for point in range(POINTS) for arm in SUITE["arms"]
    }
    assert all(1e-4 <= row["train.lr"] <= 1e-3 for row in made["rows"])
    assert f"{POINTS} of the design's {POINTS} points, {2 * POINTS} runs." in made["notes"]
    effects, sensitivities, frontier = made["grids"]
    assert [row[:2] for row in frontier["rows"]] == [
        [arm, metric] for arm in ("hinged", "plain") for metric in ("pass@1", "next-step gap")
    ]
    assert [row[:2] for row in effects["rows"]] == [["hinged", "pass@1"], ["hinged", "next-step gap"]]
    assert sensitivities["header"][2:] == ["train.lr", "method.delta"]
    assert {Path(name).suffix for name in made["files"]} == {".csv", ".md", ".tex", ".png", ".pdf"}
    (again,) = here.json("compare", str(suite))["comparisons"]
    assert again["rows"] == made["rows"]


@pytest.mark.slow
def test_a_budget_takes_the_first_points_that_fit(
    here: InProcess, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(suite, points=10, monkeypatch=monkeypatch)
    # Done runs cost no time; a second is too little for two more runs.
    result = here("reproduce", str(suite), "--budget", "1s")
    assert result.returncode == 0, result.stderr
    assert f"the first 20 of {2 * POINTS} runs fit into the budget" in result.stderr
    assert f"10 of the design's {POINTS} points, 20 runs." in result.stdout
    planned = here.json("reproduce", str(suite), "--budget", "24h", "--dry-run")
    assert len(planned["runs"]) == 2 * POINTS
