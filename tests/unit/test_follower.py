"""What the trackers of `cluster.loggers` get from an attempt; simulated modules replace wandb and trackio."""

import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import read_json
from mcpo_cli.trackers import follower
from mcpo_cli.trackers.follower import following_attempt


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "EVERY_SECONDS", 0.01)


def spec_of(*trackers: str) -> RunSpec:
    (spec,) = load(["scale=smoke", f"cluster.loggers=[{','.join(trackers)}]"])
    return spec


def followed(spec: RunSpec, folder: Path, steps: range) -> Attempt:
    """An attempt with these steps and, at even ones, evaluations: 1 of 2 and 2 of 2 samples are right."""
    attempt = Attempt(folder, spec, steps[0])
    with following_attempt(spec, attempt):
        for step in steps:
            if step > steps[0]:
                metrics = {"train/accuracy": step / 10, "train/broken": float("nan")}
                attempt.journal.step({"step": step, "time": 0.0, "metrics": metrics})
            if step % 2 == 0:
                rows = [{"step": step, "tier": "k2", "problem": str(c), "n": 2, "c": c} for c in (1, 2)]
                attempt.journal.rows("eval", step, rows)
    attempt.end("done")
    return attempt


def notes(attempt: Attempt) -> list[str]:
    return list(read_json(attempt.folder / "status.json").get("notes", []))


class Played:
    """wandb, or trackio, with the interface that is used."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[dict[str, Any]] = []
        self.told: list[Any] = []
        module = SimpleNamespace(init=self.init, Settings=lambda **settings: settings)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delitem(sys.modules, f"mcpo_cli.trackers.{name}", raising=False)

    def init(self, project: str, name: str, config: object, **where: object) -> "Played":
        self.opened.append({"project": project, "name": name, "config": config, **where})
        return self

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.told.append((step, metrics))

    def finish(self) -> None:
        self.told.append("finished")


def step(number: int) -> tuple[int, dict[str, float]]:
    return number, {"train/accuracy": number / 10, "journal/nonfinite": 1.0}


SCORES = {
    "eval/k2/pass_at_1": 0.75,
    "eval/average/pass_at_1": 0.75,
    "eval/average/pass_at_2": 1.0,
    "eval/average/best_at_2": 0.875,
}
ALL = [(0, SCORES), step(1), step(2), (2, SCORES), step(3), "finished"]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_gets_each_step_and_evaluation_once_in_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt is a run of its own, and begins where it begins."""
    played, spec = Played(name, monkeypatch), spec_of(name)
    attempt = followed(spec, tmp_path, range(4))
    assert played.told == ALL
    (opened,) = played.opened
    settings = json.loads(json.dumps(spec.identity()))
    assert (opened["project"], opened["name"], opened["config"]) == ("mcpo", spec.run_id, settings)
    assert opened.get("dir") == (str(attempt.folder) if name == "wandb" else None)
    assert notes(attempt) == []
    del played.told[:]
    followed(spec, tmp_path, range(2, 4))
    assert played.told == [step(3), "finished"]


def test_tensorboard_s_files_have_every_metric(tmp_path: Path) -> None:
    attempt = followed(spec_of("tensorboard"), tmp_path, range(4))
    events = EventAccumulator(str(attempt.folder / "tensorboard"))
    events.Reload()
    points = {
        (name, event.step, round(event.value, 6)) for name in events.Tags()["scalars"] for event in events.Scalars(name)
    }
    assert points == {(name, step, value) for step, row in ALL[:-1] for name, value in row.items()}


def test_a_tracker_that_fails_is_noted_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb, trackio = Played("wandb", monkeypatch), Played("trackio", monkeypatch)

    def fails(*_: object, **__: object) -> None:
        raise OSError("no route to host, token=hf_abcdefghijklmnopqrstuvwxyz")

    monkeypatch.setattr(wandb, "log", fails)
    attempt = followed(spec_of("wandb", "trackio"), tmp_path, range(4))
    assert trackio.told == ALL
    trouble, end = notes(attempt)
    assert trouble.startswith("warning: wandb: no route to host")
    assert "hf_abc" not in trouble
    assert end == "wandb is incomplete; the journals hold everything"


@pytest.mark.parametrize("part", ["init", "log", "finish"])
def test_a_tracker_that_hangs_keeps_no_run(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "LAST_SECONDS", 0.2)
    released = threading.Event()
    wandb = Played("wandb", monkeypatch)
    holder: Any = sys.modules["wandb"] if part == "init" else wandb
    monkeypatch.setattr(holder, part, lambda *_, **__: released.wait(60))
    attempt = followed(spec_of("wandb"), tmp_path, range(4))
    released.set()
    assert notes(attempt) == ["wandb is incomplete; the journals hold everything"]


def test_what_is_sent_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played, spec = Played("wandb", monkeypatch), spec_of("wandb")
    told = {"task": {"data": "https://me:password1@host/data"}}
    monkeypatch.setattr(type(spec), "identity", lambda _, **__: told)
    with following_attempt(spec, Attempt(tmp_path, spec, 0)):
        pass
    assert "password1" not in json.dumps(played.opened)
