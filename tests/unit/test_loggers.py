"""The data that trackers of `cluster.loggers` get from a local run; simulated modules replace wandb and trackio."""

import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mcpo_cli.backends.local import loggers
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import read_json


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "EVERY_SECONDS", 0.01)


def spec_of(*trackers: str) -> RunSpec:
    (spec,) = load(["scale=smoke", f"cluster.loggers=[{','.join(trackers)}]"])
    return spec


def write(attempt: Attempt, steps: range) -> None:
    """Write steps, and after the first and each even one an evaluation: 1 of 2 and 2 of 2 samples correct."""
    for step in steps:
        if step > steps[0]:
            attempt.journal.step({"step": step, "time": 0.0, "metrics": {"train/accuracy": step / 10}})
        if step % 2 == 0 or step == steps[0]:
            rows = [{"step": step, "tier": "k2", "problem": str(c), "n": 2, "c": c} for c in (1, 2)]
            attempt.journal.rows("eval", step, rows)


def followed(spec: RunSpec, folder: Path, steps: range) -> Attempt:
    attempt = Attempt(folder, spec, steps[0])
    with loggers.following(spec, attempt):
        write(attempt, steps)
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

    def init(self, project: str, name: str, config: object, **where: object) -> "Played":
        self.opened.append({"project": project, "name": name, "config": config, **where})
        return self

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.told.append((step, metrics))

    def finish(self) -> None:
        self.told.append("finished")


ALL = [
    (0, {"eval/k2/pass_at_1": 0.75}),
    (1, {"train/accuracy": 0.1}),
    (2, {"train/accuracy": 0.2}),
    (2, {"eval/k2/pass_at_1": 0.75}),
    (3, {"train/accuracy": 0.3}),
    "finished",
]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_gets_each_step_and_evaluation_once_in_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, spec = Played(name, monkeypatch), spec_of(name)
    attempt = followed(spec, tmp_path, range(4))
    assert played.told == ALL
    (opened,) = played.opened
    assert (opened["project"], opened["name"], opened["config"]) == (
        "mcpo",
        spec.run_id,
        json.loads(json.dumps(spec.identity())),
    )
    assert opened.get("dir") == (str(attempt.folder) if name == "wandb" else None)
    assert notes(attempt) == []


def test_a_resumed_attempt_is_a_run_that_begins_where_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played("wandb", monkeypatch)
    followed(spec_of("wandb"), tmp_path, range(2, 5))
    steps = [2, 3, 4, 4]
    assert [entry[0] for entry in played.told[:-1]] == steps


def test_tensorboard_s_files_have_every_metric(tmp_path: Path) -> None:
    attempt = followed(spec_of("tensorboard"), tmp_path, range(4))
    found = EventAccumulator(str(attempt.folder / "tensorboard"))
    found.Reload()
    series = {
        name: [(one.step, round(one.value, 6)) for one in found.Scalars(name)] for name in found.Tags()["scalars"]
    }
    assert series == {
        "eval/k2/pass_at_1": [(0, 0.75), (2, 0.75)],
        "train/accuracy": [(1, 0.1), (2, 0.2), (3, 0.3)],
    }


def test_a_tracker_that_fails_is_noted_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb, trackio = Played("wandb", monkeypatch), Played("trackio", monkeypatch)

    def fails(*_: object, **__: object) -> None:
        raise OSError("no route to host, token=hf_abcdefghijklmnopqrstuvwxyz")

    monkeypatch.setattr(wandb, "log", fails)
    attempt = followed(spec_of("wandb", "trackio"), tmp_path, range(4))
    assert trackio.told == ALL
    (note,) = notes(attempt)
    assert note.startswith("wandb is incomplete (OSError: no route to host")
    assert "hf_abc" not in note


@pytest.mark.parametrize("part", ["init", "log", "finish"])
def test_a_tracker_that_hangs_keeps_no_run(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "LAST_SECONDS", 0.2)
    released = threading.Event()

    def hangs(*_: object, **__: object) -> None:
        released.wait(60)

    wandb = Played("wandb", monkeypatch)
    holder: Any = sys.modules["wandb"] if part == "init" else wandb
    monkeypatch.setattr(holder, part, hangs)
    attempt = followed(spec_of("wandb"), tmp_path, range(4))
    released.set()
    (note,) = notes(attempt)
    assert note.startswith("wandb is incomplete (not all was sent within 0 s)")


def test_what_is_sent_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played("wandb", monkeypatch)
    (spec,) = load(["scale=smoke", "cluster.loggers=[wandb]", "regime=drift"])
    told = {"task": {"data": "https://me:password1@host/data"}}
    monkeypatch.setattr(type(spec), "identity", lambda _, **__: told)
    with loggers.following(spec, Attempt(tmp_path, spec, 0)):
        pass
    assert "password1" not in json.dumps(played.opened)


def test_without_trackers_nothing_runs(tmp_path: Path) -> None:
    before = threading.active_count()
    spec = spec_of()
    with loggers.following(spec, Attempt(tmp_path, spec, 0)):
        assert threading.active_count() == before
