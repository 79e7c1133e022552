"""The sampler of docs/write-a-sampler.md, saved as described, passes the conformance kit and trains."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcpo_cli.runs.journal import Journal
from mcpo_cli.testing import SAMPLER_CHECKS

PAGE = (Path(__file__).parents[2] / "docs" / "write-a-sampler.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the page describes, with its only file."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "my_samplers").mkdir()
    (tmp_path / "my_samplers" / "second_chance.py").write_text(source, encoding="utf-8")
    return tmp_path


def typed(words: list[str], folder: Path) -> str:
    environment = {**os.environ, "MCPO_PLUGINS": str(folder / "my_samplers"), "MCPO_HOME": str(folder / "results")}
    command = [sys.executable, "-m", "mcpo_cli.main", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told() -> list[list[str]]:
    """The commands of the page after the first, which names the folder."""
    (lines,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    first, *others = [line.partition("#")[0].removeprefix("$ ").split() for line in lines.splitlines()]
    assert first == ["export", "MCPO_PLUGINS=$PWD/my_samplers"]
    return [words[1:] for words in others]


@pytest.mark.slow
def test_the_sampler_of_the_page_passes_and_trains(folder: Path) -> None:
    check, train = told()
    outcomes = json.loads(typed([*check, "--json"], folder))["checks"]
    assert [one["name"] for one in outcomes] == list(SAMPLER_CHECKS)
    assert all(one["passed"] for one in outcomes)
    typed([*train, "method=grpo", "train.steps=4", "train.temperature=0.3", "compute.tracking_uri=offline"], folder)
    (run,) = (folder / "results" / "runs").iterdir()
    groups = Journal(run).groups()
    hard = {row["prompt"] for row in groups if row["step"] == 1 and row["p"] == 0}
    assert hard & {row["prompt"] for row in groups if row["step"] == 3}, (
        "none of the prompts that nobody solved is back"
    )
    spec = json.loads((run / "spec.json").read_text(encoding="utf-8"))
    assert spec["sampler"] == {"name": "my_second_chance", "wait": 2}
    assert list(spec["plugins"]) == ["sampler my_second_chance"]
