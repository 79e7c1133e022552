"""docs/tutorial.md, as a reader would follow it: its suite is written to a file, its commands are run in order."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path: Path, base_policies: Path) -> None:
    (tmp_path / "cache").symlink_to(base_policies)
    text = PAGE.read_text(encoding="utf-8")
    suites = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    for name, suite in zip(("hinge.yaml", "where.yaml"), suites, strict=True):
        (tmp_path / name).write_text(suite)
    lines = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).splitlines()
    commands = [line.partition("#")[0] for line in lines if line.strip()]
    assert len(commands) == 10
    commands.append("mcpo train hinge.yaml --json")
    env = {**os.environ, "MCPO_HOME": str(tmp_path), "MLFLOW_TRACKING_URI": "offline"}
    shown = {}
    for command in commands:
        words = [sys.executable, "-m", "mcpo_cli.main", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        shown[" ".join(command.split()[:2])] = done.stdout
    assert "minus reweight only" in shown["mcpo compare"]
    assert "MCPO" in shown["mcpo probe"]
    assert "0 of 64 runs done" in shown["mcpo reproduce"]
    assert list((tmp_path / "reports" / "toy").glob("hinge*.csv"))
    # The numbers mean something: no arm fails all problems or solves all of them.
    accuracies = [run["metrics"]["train/accuracy"] for run in json.loads(shown["mcpo train"])["runs"]]
    assert len(accuracies) == 6
    assert all(0.1 < accuracy < 0.99 for accuracy in accuracies)
