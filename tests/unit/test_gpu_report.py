"""The GPU check without a GPU: its report, parts that fail or are killed, and the reasons why parts are skipped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.machine import GIB, Gpu
from tests.gpu import conftest, process
from tests.gpu.conftest import Check
from tests.gpu.parts import PARTS, Part
from tests.gpu.report import Report, Result

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import os, sys, signal
from pathlib import Path
from tests.gpu.notes import Notes
Notes(Path(sys.argv[1])).figure("tokens a second", 12.5, "1/s", "of a test")
os.kill(os.getpid(), signal.SIGKILL)
"""
FAILING = "raise ValueError('CUDA out of memory')"
MISSING = """
import sys
from pathlib import Path
from tests.gpu.notes import Notes
notes = Notes(Path(sys.argv[1]))
notes.figure("gradient", 0.2, "relative difference", "of a test", at_most=0.1)
notes.left_out("Triton", "it needs a GPU")
"""


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """A check whose parts have no requirements and run on every machine."""
    return Check("cpu", Report(tmp_path, rehearsal=True), tmp_path)


def run(check: Check, monkeypatch: pytest.MonkeyPatch, letter: str, program: str) -> Result:
    def command(_letter: str, _device: str, folder: Path) -> list[str]:
        return [sys.executable, "-c", program, str(folder / process.NOTES)]

    monkeypatch.setattr(process, "command", command)
    return check.run(Part(letter, "a part", "none", ()))


def parts(check: Check) -> dict[str, Any]:
    return {part["letter"]: part for part in json.loads(check.report.path.read_text(encoding="utf-8"))["parts"]}


@pytest.mark.slow
def test_a_part_that_is_killed_or_fails_loses_nobodys_figures(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    run(check, monkeypatch, "A", KILLED)
    assert [figure["value"] for figure in parts(check)["A"]["figures"]] == [12.5]
    run(check, monkeypatch, "B", FAILING)
    run(check, monkeypatch, "C", MISSING)
    found = parts(check)
    assert {letter: part["state"] for letter, part in found.items()} == dict.fromkeys("ABC", "failed")
    assert found["A"]["figures"][0]["holds"]
    assert "CUDA out of memory" in found["B"]["reason"]
    assert "0.2" in found["C"]["reason"]
    assert found["C"]["left_out"] == {"Triton": "it needs a GPU"}
    report = json.loads(check.report.path.read_text(encoding="utf-8"))
    assert report["schema_version"] == 1
    assert report["rehearsal"]
    assert report["versions"]["torch"]
    assert {"date", "device", "driver", "commit"} <= report.keys()
    page = check.report.page.read_text(encoding="utf-8")
    assert "No figure here is a result" in page
    assert report["device"] in page
    assert "| gradient | 0.2 | relative difference |" in page


def test_packages_that_are_missing_are_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest.machine, "gpus", lambda: [Gpu("H100", 80 * GIB, 80 * GIB)])
    check = Check("cuda", Report(tmp_path, rehearsal=False), tmp_path)
    result = check.run(Part("A", "a part", "none", ("torch", "no_such_package")))
    assert (result.state, result.reason.split(" (")[0]) == ("skipped", "not installed: no_such_package")
    assert check.report.header["device"] == "H100"
    # No figure was measured, so those of another machine stay.
    assert not check.report.path.exists()


@pytest.mark.slow
def test_without_a_gpu_each_part_says_that_it_is_skipped(tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "MCPO_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    for part in PARTS.values():
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"{part.letter}  "))
        assert line.startswith(f"{part.letter}  {part.title}: skipped: this machine has no NVIDIA GPU")
    assert not (tmp_path / "reports").exists()
