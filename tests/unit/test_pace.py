"""Elapsed against promised time, with forecasts and times made up for each case."""

from dataclasses import replace
from pathlib import Path

import pytest

from mcpo_cli.config import plan as plans
from mcpo_cli.scheduling.forecast import Expected, Forecast, forecast
from mcpo_cli.scheduling.pace import Pace


def promised(home: Path, *overrides: str) -> tuple[Forecast, list[str]]:
    """Runs of 100 steps, each of which promises 4 s to start, 1 s per step and 6 s for the last evaluation."""
    plan = plans.from_overrides(["train.steps=100", "warmup.target_accuracy=0", *overrides])
    expected = forecast(plan)
    runs: dict[str, Expected] = {
        run_id: replace(run, seconds_left=110.0, start_seconds=4.0, end_seconds=6.0)
        for run_id, run in expected.runs.items()
    }
    return replace(expected, runs=runs), list(runs)


def test_within_a_tenth_of_a_run_the_rest_is_corrected(home: Path) -> None:
    expected, (first, second) = promised(home, "seed=0,1")
    pace = Pace(expected)
    pace.see(first, 0, 1000.0)
    assert pace.seconds_left(first, 1000.0) == 110
    # Ten steps and the start were promised for 14 seconds and took six times as long.
    pace.see(first, 10, 1084.0)
    assert pace.seconds_left(first, 1084.0) == pytest.approx(6 * 96)
    assert pace.seconds_left(second, 1084.0) == pytest.approx(6 * 110)
    # Until the next step the time passes, and the speed is not estimated anew.
    pace.see(first, 10, 1088.0)
    assert pace.seconds_left(first, 1088.0) == pytest.approx(6 * 96 - 4)
    # After the last step, evaluation is left.
    pace.see(first, 100, 1084.0 + 540)
    assert pace.seconds_left(first, 1084.0 + 540) == pytest.approx(6 * 6)


def test_a_run_that_is_overdue_before_its_first_step_counts(home: Path) -> None:
    expected, (first, second) = promised(home, "seed=0,1")
    pace = Pace(expected)
    pace.see(first, 0, 0.0)
    pace.see(first, 0, 5.0)
    assert pace.seconds_left(second, 5.0) == 110
    # Five seconds were promised until the end of the first step.
    pace.see(first, 0, 20.0)
    assert pace.seconds_left(second, 20.0) == pytest.approx(4 * 110)


def test_runs_of_another_model_have_another_pace_as_soon_as_it_is_known(home: Path) -> None:
    expected, (small, large) = promised(home, "model=toy-s,toy-m")
    pace = Pace(expected)
    pace.see(small, 0, 0.0)
    pace.see(small, 6, 5.0)
    assert pace.seconds_left(large, 5.0) == pytest.approx(110 / 2)
    pace.see(large, 0, 5.0)
    pace.see(large, 1, 20.0)
    assert pace.seconds_left(small, 20.0) == pytest.approx(100 / 2 - 15)
    assert pace.seconds_left(large, 20.0) == pytest.approx(3 * 105)


def test_time_is_left_until_libraries_are_loaded(home: Path) -> None:
    expected, (run,) = promised(home)
    pace = Pace(expected)
    assert pace.loading(1.0) == expected.loading - 1 > 0
    assert pace.loading(60.0) == 0
    pace.see(run, 0, 2.0)
    assert pace.loading(2.0) == 0
