"""The file of summaries of a large home: it saves reading, and never changes what a listing says."""

import json
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from mcpo_cli.config.load import load
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.home import run_dir
from mcpo_cli.runs import catalog, index
from mcpo_cli.runs.journal import write_json
from tests.errors import refused
from tests.fakes import write_runs

SMALL = ("scale=smoke", "model=toy-s", "train.steps=2", "eval.every=1", "eval.problems=2")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three done runs of two arms, in a home that is large enough for a file of summaries."""
    monkeypatch.setenv("MCPO_HOME", str(tmp_path))
    monkeypatch.setattr(index, "LEAST", 1)
    monkeypatch.setattr(index, "SETTLED_SECONDS", 0.0)
    words = (("method=mcpo", "seed=0"), ("method=mcpo", "seed=1"), ("method=mcpo", "seed=0", "method.delta=.1"))
    specs = [load([*SMALL, *some])[0] for some in words]
    write_runs(Plan("train", "mcpo train", tuple(PlannedRun(spec.method.label, spec) for spec in specs)))
    for spec in specs:
        (run_dir(spec.run_id) / "spec.json").write_text(json.dumps(spec.to_dict()))
    return tmp_path


def listed(home: Path) -> tuple[list[object], dict[str, str]]:
    """What a listing says about each run, and the runs that it leaves out with the reasons."""
    left_out: dict[str, str] = {}
    found = list(catalog.runs(home, left_out.__setitem__))
    arms = catalog.arms([run.summary for run in found])
    return [
        (run.folder.name, arm, run.state, run.score, run.date, run.summary.step, run.facts, run.planned)
        for run, arm in zip(found, arms, strict=True)
    ], left_out


def test_a_second_listing_says_the_same_and_reads_no_journal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listed(home)
    assert (home / index.FILE).exists()
    monkeypatch.setattr(index, "summarise", None)
    monkeypatch.setattr(catalog, "_read", None)
    assert listed(home) == before
    assert sorted(arm for _, arm, *_ in before[0]) == ["mcpo delta=0.01", "mcpo delta=0.01", "mcpo delta=0.1"]


def test_a_name_that_is_no_utf8_is_read_every_time(home: Path) -> None:
    write_json(catalog.folders(home)[0] / "origin.json", {"suite": "train", "command": "mcpo train \udcff.yaml"})
    assert listed(home) == listed(home)
    assert len(orjson.loads((home / index.FILE).read_bytes())["runs"]) == 2


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a row of metrics is damaged": lambda run: rewrite(run / "attempt_1" / "metrics.jsonl", '"step": 1', '"step": 9'),
    "an evaluation is edited": lambda run: rewrite(run / "attempt_1" / "eval" / "step_000002.jsonl", '"c": ', '"c":  '),
    "an evaluation is removed": lambda run: (run / "attempt_1" / "eval" / "step_000002.jsonl").unlink(),
    "the status is damaged": lambda run: (run / "attempt_1" / "status.json").write_text("{"),
    "the settings are half-written": lambda run: (run / "spec.json").write_text('{"seed": 0'),
    "the settings are another run's": lambda run: rewrite(run / "spec.json", '"seed": 0', '"seed": 7'),
    "the settings of the attempt are another run's": lambda run: rewrite(
        run / "attempt_1" / "spec.json", '"seed": ', '"seed": 7'
    ),
    "an origin appears": lambda run: (run / "origin.json").write_text('{"suite": "mine", "arm": "A"}'),
    "the settings are gone": lambda run: (run / "spec.json").unlink(),
    "the folder has another name": lambda run: run.rename(run.with_name("copy")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_read_again(home: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listed(home)
    CHANGES[change](catalog.folders(home)[0])
    with_file = listed(home)
    assert with_file != before
    monkeypatch.setattr(index, "LEAST", 1000)
    assert listed(home) == with_file


@pytest.mark.parametrize("content", [b"", b"{}", b'{"made_by": ["other code"], "tables": [], "runs": {}}', b"[1]"])
def test_a_file_that_is_damaged_or_of_other_code_is_replaced(home: Path, content: bytes) -> None:
    before, good = listed(home), (home / index.FILE).read_bytes()
    (home / index.FILE).write_bytes(content)
    assert listed(home) == before
    assert orjson.loads((home / index.FILE).read_bytes()) == orjson.loads(good)


def test_a_file_that_changed_just_now_is_read_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change within the resolution of a file system's clock would leave the same time and size."""
    monkeypatch.setattr(index, "SETTLED_SECONDS", 1000.0)
    listed(home)
    assert not (home / index.FILE).exists()


def test_a_home_that_cannot_be_written_is_listed(home: Path) -> None:
    before = listed(home)
    (home / index.FILE).unlink()
    (home / index.FILE.parent).rmdir()
    (home / index.FILE.parent).write_text("a file in the place of the folder")
    assert listed(home) == before


def test_a_setting_that_no_run_has_is_mended_with_one_that_they_have(home: Path) -> None:
    for key, fix in {"lr": "train.lr or warmup.lr", "stat": "state", "foo": "mcpo help  (lists the settings)"}.items():
        with refused("unknown_key", key) as error:
            catalog.chosen(catalog.runs(home), [f"{key}=1"])
        assert error.value.fix == fix
