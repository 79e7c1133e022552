"""`mcpo report` ended by signals while it draws: no process stays, and the same command makes the same files."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from mcpo_cli.config.plan import from_suite
from tests.cli.conftest import MCPO
from tests.fakes import write_runs
from tests.faults.conftest import Faults

pytestmark = pytest.mark.slow
OVERRIDES = ["scale=smoke", "model=toy-s", "seed=0,1", "compute.tracking_uri=offline"]
LACKING = 3
"""Only the runs of table1 are there."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MCPO_HOME", str(tmp_path))
    write_runs(from_suite("table1", OVERRIDES, "mcpo reproduce all"))
    return tmp_path


def begin() -> "subprocess.Popen[bytes]":
    command = [*MCPO, "report", *OVERRIDES]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=os.environ
    )


def files(folder: Path) -> dict[str, bytes]:
    """The files of the artifacts and the report's permalink, without its date; the report's own have the date."""
    found = sorted(folder.glob("*.*"))
    return {
        path.name: re.sub(rb'<p class="date">[^<]*</p>', b"", path.read_bytes())
        for path in found
        if path.stem != "report" and not path.name.startswith(".")
    }


def draws(process: "subprocess.Popen[bytes]", folder: Path) -> list[psutil.Process]:
    """All processes of a report that has drawn a first figure."""
    while not list(folder.glob("*.png")):
        assert process.poll() is None
        time.sleep(0.05)
    helpers = psutil.Process(process.pid).children(recursive=True)
    assert helpers
    return helpers


def test_a_report_that_is_ended_while_it_draws(home: Path, faults: Faults) -> None:
    """One signal after the other, each beside what the one before has left half done."""
    folder = home / "reports" / "smoke"
    assert begin().wait(timeout=600) == LACKING
    expected = files(folder)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        for path in folder.glob("[!.]*"):
            path.unlink()
        process = begin()
        helpers = draws(process, folder)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        assert process.wait(timeout=600) in (-number, 130)
        _, alive = psutil.wait_procs(helpers, timeout=300)
        assert not alive
        # What was there already was whole.
        wrong = sum(expected[name] != content for name, content in files(folder).items())
        faults(f"{number.name} of a report that draws", wrong=wrong)
    began = time.monotonic()
    assert begin().wait(timeout=600) == LACKING
    again, taken = files(folder), time.monotonic() - began
    lost = len(expected.keys() - again.keys())
    wrong = sum(again.get(name, content) != content for name, content in expected.items())
    faults("a report that was ended three times", lost=lost, wrong=wrong, seconds=[taken])
