"""`mcpo train` and `mcpo reproduce all` for real, at the smallest scale, and the verbs about a run."""

import json
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from mcpo_cli.config.plan import from_suite
from mcpo_cli.config.reference import glossary
from mcpo_cli.report import artifacts, builder
from mcpo_cli.runs.journal import Journal
from tests.cli.conftest import Cli, InProcess
from tests.fakes import ThisProcess, write_runs

OFFLINE = "compute.tracking_uri=offline"
QUICK = ("scale=smoke", OFFLINE, "warmup.target_accuracy=0", "train.max_response=16")
"""Settings without a warm-up: an untrained policy suffices to test the machinery."""


def journal(home: Path) -> Journal:
    """The journal of the only run."""
    (folder,) = (home / "runs").iterdir()
    return Journal(folder)


@pytest.mark.slow
def test_train_list_show_and_sync(cli: Cli, here: InProcess, empty_store: Path) -> None:
    result = here("train", *QUICK, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    (run,) = document["runs"]
    assert document["home"] == str(cli.home)
    assert document["suite"] == "train"
    assert {key: run[key] for key in ("arm", "method", "model", "seed", "state")} == {
        "arm": "mcpo", "method": "mcpo", "model": "toy-s", "seed": 0, "state": "done",
    }  # fmt: skip
    assert run["metrics"]["train/accuracy"] >= 0
    words = [name for section in glossary().sections.values() for word in section for name in word.word.split(", ")]
    recorded = [name for name in run["metrics"] if not name.startswith("eval/")]
    assert [name for name in recorded if not any(fnmatchcase(name, word) for word in words)] == []
    assert any(name.startswith("eval/") and name.endswith("/pass_at_1") for name in run["metrics"])
    assert "1 of 1" in result.stderr

    assert here.json("train", *QUICK) == document
    assert len(journal(cli.home).attempts()) == 1

    (row,) = here.json("runs", "list", "--where", "state=done")["runs"]
    assert (row["run_id"], row["step"], row["suite"]) == (run["run_id"], 3, "train")
    assert here.json("runs", "list", "--where", "state=failed")["runs"] == []
    shown = here.json("runs", "show", run["run_id"][:14])
    assert shown["metrics"] == run["metrics"]
    assert shown["spec"]["train"]["steps"] == 3
    assert shown["attempts"][0]["state"] == "done"
    assert "attempt_1/metrics.jsonl" in shown["files"]
    assert run["run_id"] in here.refused("unknown_name", "runs", "show", run["run_id"][:-1] + "x")

    assert not (cli.home / "mlflow.db").exists()
    shutil.copy(empty_store, cli.home / "mlflow.db")
    assert here.json("runs", "sync")["points"][run["run_id"]] > 0
    assert here.json("runs", "sync")["points"][run["run_id"]] == 0


SMALL = ("scale=smoke", "model=toy-s", "seed=0")
FILES = ("report.html", "report.md", "report.json")


@pytest.mark.slow
@pytest.mark.usefixtures("warm_home")
def test_reproduce_all_trains_builds_and_reports_and_does_so_once(
    here: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "helpers", ThisProcess)
    for suite in ("table1", "table2"):
        write_runs(from_suite(suite, SMALL, ""), probed=True)
    first = here("reproduce", "all", *SMALL)
    assert first.returncode == 0, first.stderr
    (trained,) = from_suite("mastery", SMALL, "").runs
    assert [path.parent.name for path in here.home.glob("runs/*/worker.log")] == [trained.spec.run_id]
    folder = here.home / "reports" / "smoke"
    assert all(f"written: {folder / name}\n" in first.stderr for name in FILES)
    for name in artifacts.names("all"):
        assert f"\n{name}: " in f"\n{first.stdout}"
    assert "runs of several commits" in (folder / "report.md").read_text(encoding="utf-8")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.name not in FILES}
    attempts = sorted(here.home.glob("runs/*/attempt_*"))
    again = here.json("reproduce", "all", *SMALL)
    assert again["report"]["not_built"] == {}
    assert {run["state"] for suite in again["suites"] for run in suite["runs"]} == {"done"}
    assert sorted(here.home.glob("runs/*/attempt_*")) == attempts
    assert {path: path.read_bytes() for path in before} == before
    assert [Path(path).name for path in again["report"]["files"]] == list(FILES)
