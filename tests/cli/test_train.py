"""`mcpo train` and `mcpo reproduce` for real, at the smallest scale."""

import json
import re
import shutil
import signal
import subprocess
import time
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from mcpo_cli.config import plan
from mcpo_cli.config.reference import glossary
from mcpo_cli.errors import Interrupted
from mcpo_cli.runs.journal import Journal
from tests.cli.conftest import MCPO, Cli, InProcess
from tests.fakes import write_runs

OFFLINE = "compute.tracking_uri=offline"
QUICK = ("scale=smoke", OFFLINE, "warmup.target_accuracy=0", "train.max_response=16")
"""Settings without a warm-up: an untrained policy suffices to test the machinery."""
LONG = (*QUICK, "train.steps=40", "compute.checkpoint_every=1", "eval.every=40")


def journal(home: Path) -> Journal:
    """The journal of the only run."""
    (folder,) = (home / "runs").iterdir()
    return Journal(folder)


def start(cli: Cli, *arguments: str) -> "subprocess.Popen[str]":
    """`mcpo train` in a separate session, after it has recorded its first steps."""
    process = subprocess.Popen(
        [*MCPO, "train", *arguments], env=cli.env, text=True, stderr=subprocess.PIPE, start_new_session=True
    )
    while not (cli.home / "runs").exists() or len(journal(cli.home).steps()) < 2:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    return process


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


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_and_the_same_command_continues(cli: Cli, here: InProcess) -> None:
    """tests/e2e/test_resume.py compares the bits with those of an uninterrupted run."""
    process = start(cli, *LONG)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=600)
    assert process.returncode == Interrupted.exit_code
    assert f"mcpo train {' '.join(LONG)}" in talk
    assert len(re.findall(r"^error: ", talk, re.MULTILINE)) == 1
    assert "Traceback" not in talk
    assert here.json("runs", "list")["runs"][0]["state"] == "interrupted"
    (run,) = here.json("train", *LONG)["runs"]
    assert run["state"] == "done"
    assert len(journal(cli.home).attempts()) == 2


@pytest.mark.slow
def test_reproduce_trains_nothing_again_and_changes_no_digit(here: InProcess) -> None:
    arguments = ("table1", "scale=smoke", "seed=0,1", OFFLINE)
    write_runs(plan.from_suite("table1", list(arguments[1:]), "mcpo reproduce table1"))
    first = here("reproduce", *arguments)
    assert first.returncode == 0, first.stderr
    reports = {path: path.read_bytes() for path in sorted((here.home / "reports").glob("**/*")) if path.is_file()}
    assert {path.suffix for path in reports} == {".md", ".csv", ".tex", ".png", ".pdf", ".json"}
    assert (
        f"written: {here.home / 'reports' / 'smoke' / 'table1.csv'}, and .md .tex .png .pdf beside it" in first.stderr
    )
    document = here.json("reproduce", *arguments)
    (suite,), table = document["suites"], document["artifacts"]["table1"]
    assert len(suite["runs"]) == len(table["runs"]) == 8
    assert sorted(table["files"]) == [path.name for path in reports if path.suffix != ".json"]
    assert {path: path.read_bytes() for path in reports} == reports
    assert {run["state"] for run in suite["runs"]} == {"done"}
    assert not list((here.home / "runs").glob("*/attempt_2"))
