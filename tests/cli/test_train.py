"""`mcpo train` for real, at the smallest scale, and the verbs about its run."""

import json
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from mcpo_cli.config.reference import glossary
from mcpo_cli.runs.journal import Journal
from tests.cli.conftest import Cli, InProcess

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
