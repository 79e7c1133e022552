"""`make gpu-check ARGS=--rehearse`: parts of the GPU check at tiny sizes on a CPU; E alone, as it takes minutes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.verl.conftest import PATIENCE, ROOT

pytestmark = [pytest.mark.verl, pytest.mark.slow]


def rehearsed(home: Path, parts: str) -> Any:
    """The report of a rehearsal of these parts."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu", "--rehearse"]
    environment = {**os.environ, "MCPO_HOME": str(home)}
    done = subprocess.run(
        [*command, "-n", "0", "-k", parts],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout
    assert "rehearsal of the GPU check: no result" in done.stdout
    return json.loads((home / "reports" / "gpu-check-rehearsal.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of parts A to D; tests/e2e/test_gpu_rehearsal.py has those of the local engine."""
    return rehearsed(tmp_path_factory.mktemp("rehearsal"), "engine or drift or utilisation or rows")


def figures(report: Any, letter: str) -> dict[str, float]:
    (part,) = (part for part in report["parts"] if part["letter"] == letter)
    return {figure["name"]: figure["value"] for figure in part["figures"]}


def test_it_is_marked_as_a_rehearsal_and_every_part_has_figures(report: Any) -> None:
    assert report["rehearsal"]
    assert [(part["letter"], part["state"]) for part in report["parts"]] == [(each, "measured") for each in "ABCD"]
    assert all(figure["holds"] for part in report["parts"] for figure in part["figures"])
    held = {part["letter"] for part in report["parts"] for figure in part["figures"] if figure["at_most"] is not None}
    assert held == set("ABD")


def test_what_needs_a_gpu_is_left_out_with_the_reason(report: Any) -> None:
    left_out = {name: reason for part in report["parts"] for name, reason in part["left_out"].items()}
    assert left_out["fused Triton kernels"] == "Triton needs a GPU"
    assert {"utilisation", "peak memory", "memory while offloaded"} <= left_out.keys()


@pytest.mark.vllm
def test_whole_runs_with_vllm_agree_and_a_killed_one_gives_the_same_bits(tmp_path: Path) -> None:
    report = rehearsed(tmp_path, "training")
    (part,) = (part for part in report["parts"] if part["letter"] == "E")
    assert (part["state"], part["left_out"]) == ("measured", {})
    found = figures(report, "E")
    assert found["resumed from"] == 2
    # The sampling policy stays equal to the trained one, and nothing is rounded to bfloat16 here.
    assert max(found[f"{method}: trainer against sampler"] for method in ("MCPO", "DAPO")) < 1e-4
    assert found["MCPO: noise floor"] == found["DAPO: noise floor"] == 0
    assert found["numbers that differ"] == found["evaluations that differ"] == 0
    assert found["accuracy, verl against local"] < 4
    # The V2 model runner needs a GPU.
    assert found["MCPO: verl/vllm_v2_model_runner"] == 0
