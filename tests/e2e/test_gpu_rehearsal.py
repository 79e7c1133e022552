"""`make gpu-check ARGS=--rehearse` without verl: the parts of the local engine run on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def test_the_local_engines_parts_need_torch_and_transformers_only(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu", "--rehearse"]
    done = subprocess.run(
        [*command, "-n", "0", "-k", "existing or local"],
        cwd=ROOT,
        env={**os.environ, "MCPO_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    report = json.loads((tmp_path / "reports" / "gpu-check-rehearsal.json").read_text(encoding="utf-8"))
    assert [(part["letter"], part["state"]) for part in report["parts"]] == [("F", "measured"), ("G", "measured")]
    (part,) = (part for part in report["parts"] if part["letter"] == "G")
    found = {figure["name"]: figure["value"] for figure in part["figures"]}
    # The device is the CPU itself.
    assert found["log-probabilities, float32"] == found["gradient, float32"] == 0
    # Rounding to bfloat16 is measured, because a run takes it for drift.
    assert 0 < found["gradient, bfloat16"] < 0.1
    assert found["bfloat16 against float32, at rest: largest"] > found["float32, another packing, at rest"]
    assert (found["killed"], found["resumed"], found["attempts"]) == (-9, 0, 2)
    assert {"peak memory"} <= part["left_out"].keys()
