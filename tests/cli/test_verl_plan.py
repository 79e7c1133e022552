"""Runs of verl, planned and shown without verl installed."""

import csv
import subprocess
import sys

import pytest

from mcpo_cli.config import cost, plan
from mcpo_cli.config.load import load
from tests.cli.conftest import InProcess
from tests.fakes import write_runs
from tests.golden.test_verl_settings import golden

ARGUMENTS = ("train", "backend=verl", "scale=paper", "method=mcpo", "model=qwen3-8b", "--dry-run")


def test_a_dry_run_shows_the_command_the_environment_and_the_settings(here: InProcess) -> None:
    result = here(*ARGUMENTS, "--verbose")
    assert result.returncode == 0, result.stderr
    shown = result.stdout.replace(str(here.home), "/MCPO_HOME").replace(sys.executable, "python")
    assert golden("mcpo").read_text(encoding="utf-8").strip() in shown
    assert here.untouched()


def test_the_command_survives_the_shell(here: InProcess) -> None:
    (run,) = here.json(*ARGUMENTS)["runs"]
    command = here(*ARGUMENTS, "--verbose").stdout.partition("# command\n")[2]
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    assert words.stdout.split("\0")[:-1] == run["preview"]["command"]
    assert run["preview"]["command"][:4] == [sys.executable, "-P", "-m", "mcpo_cli.backends.verl.main"]


def test_a_plan_says_what_gpus_disk_and_tokens_it_needs(here: InProcess) -> None:
    document = here.json("train", "--dry-run", "table1", "scale=paper")
    assert {run["model"] for run in document["runs"]} == {"qwen3-8b", "qwen3-14b"}
    assert document["estimate"]["parallel"] == 1
    for run in document["runs"]:
        (spec,) = load(["scale=paper", f"method={run['method']}", f"model={run['model']}"])
        expected = cost.estimate(spec).gpus
        assert expected
        assert run["cost"] == expected.to_json()
    for text in (
        here("train", "--dry-run", "table1", "scale=paper").stdout,
        here("ablate", "table1", "scale=paper", "--dry-run").stdout,
    ):
        assert "about 516 " in text
    assert here.untouched()


@pytest.mark.slow
def test_the_papers_table_is_made_of_runs_from_elsewhere(here: InProcess) -> None:
    """verl is not installed here; the runs are done, as if they had been copied from a cluster."""
    overrides = ["scale=paper", "train.steps=2", "compute.tracking_uri=offline"]
    planned = plan.from_suite("table1", overrides, "mcpo reproduce table1")
    write_runs(planned)
    result = here("reproduce", "table1", *overrides, "--full")
    assert result.returncode == 0, result.stderr
    for column in ("aime24", "aime25", "amc23", "qwen3-8b", "qwen3-14b"):
        assert column in result.stdout
    (table,) = here.home.glob("reports/paper/table1.csv")
    rows = list(csv.DictReader(table.open()))
    measured = {row["tier"]: row["problems"] for row in rows if row["block"] == "measured"}
    assert measured == {"aime24": "30", "aime25": "30", "amc23": "40", "average": "100"}
    assert "verl ==0.9.1" in here.refused("bad_input", "train", "scale=paper", "method=grpo")
