"""The displays, with plans that never ran."""

import io
import re

import pytest
from rich.console import Console

from mcpo_cli.config import plan
from mcpo_cli.records import State
from mcpo_cli.scheduling import display as module
from mcpo_cli.scheduling.display import LineDisplay, LiveDisplay
from mcpo_cli.scheduling.progress import Progress, RunView, View

CELLS = plan.from_overrides(["seed=0,1,2"]).runs
STEP = Progress(
    step=12,
    phase="step 13 of 40",
    metrics={"train/accuracy": 0.4321, "mastery/mastered": 0.11},
    pass_at_1=0.25,
)


def view(*states: State, progress: Progress = STEP, error: str | None = None) -> View:
    runs = [
        RunView(run, state, progress, error if state == "failed" else None, 65.0 if state == "running" else None)
        for run, state in zip(CELLS, states, strict=True)
    ]
    return View("table1", runs, elapsed=61.0, seconds_left=3723.0, stopping=False)


def after_the_time(line: str) -> str:
    time, _, text = line.partition(" ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", time)
    return text


def test_lines_tell_changes_at_once_and_progress_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with LineDisplay() as display:
        for _ in range(100):
            display.update(view("done", "running", "running"))
            clock[0] += 0.25
        display.update(view("done", "done", "failed", error="no luck"))
    out, err = capsys.readouterr()
    lines = [after_the_time(line) for line in err.splitlines()]
    second = CELLS[1].spec.run_id
    assert out == ""
    assert f"mcpo, toy-s, seed 1: running, {second}" in lines
    assert f"mcpo, toy-s, seed 1: done (2 of 3), {second}" in lines
    assert f"mcpo, toy-s, seed 2: failed (no luck), {CELLS[2].spec.run_id}" in lines
    # 25 seconds without a change; all that matters is within 80 columns.
    progress = "eval pass@1 0.250, accuracy 0.432, step 13 of 40, mastered 0.110, 1:05 left"
    assert lines.count(f"mcpo, toy-s, seed 1: {progress}, {second}") == 1
    assert not any("seed 0" in line for line in lines)


@pytest.mark.parametrize(("changes", "expected"), [(True, 28), (False, 3)])
def test_lines_of_progress_repeat_themselves_once_a_minute(
    changes: bool, expected: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "_activity", lambda _: [f"step {clock[0] if changes else 13}"])
    monkeypatch.setattr(module, "_left", lambda _: f"{clock[0]} left")  # never the same
    with LineDisplay() as display:
        # 140 seconds
        for _ in range(560):
            display.update(view("done", "running", "running"))
            clock[0] += 0.25
    lines = [after_the_time(line) for line in capsys.readouterr().err.splitlines()]
    printed = sum(line.startswith("mcpo, toy-s, seed 1: step") for line in lines)
    assert expected - 1 <= printed <= expected


@pytest.mark.parametrize("width", [40, 80])
def test_the_live_display_fits_the_terminal(width: int) -> None:
    screen = io.StringIO()
    with LiveDisplay(Console(file=screen, force_terminal=True, width=width, color_system=None)) as display:
        display.update(view("done", "running", "failed", error="no luck"))
        display.note("a word")
    lines = [line for part in screen.getvalue().split("\x1b") for line in part.splitlines()]
    assert all(len(line) <= width + 5 for line in lines)
    # At 80 columns the arm, the time left and both accuracies.
    for shown in ("mcpo, toy-s, seed 1", "1:05 left", *(["pass@1 0.250", "accuracy 0.432"] if width >= 80 else [])):
        assert shown in screen.getvalue()
    assert "no luck" in " ".join(screen.getvalue().split())
    assert "a word" in screen.getvalue()
