"""Runs the parts of the GPU check one after the other, and reports their figures."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mcpo_cli import machine
from mcpo_cli.home import home
from tests.gpu import notes, process
from tests.gpu.parts import Part
from tests.gpu.report import Report, Result

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 3600.0
"""Seconds after which a part is ended."""
REPORT = pytest.StashKey[Report]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the only option, a rehearsal."""
    parser.addoption("--rehearse", action="store_true", help="the GPU check at tiny sizes on CPU: no result")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the outcome of each part, and the file of the report."""
    if report := config.stash.get(REPORT, None):
        terminalreporter.section("rehearsal of the GPU check: no result" if report.rehearsal else "GPU check")
        for result in report.results:
            for line in result.lines():
                terminalreporter.write_line(line)
        if report.path.exists() and report.measured:
            terminalreporter.write_line(f"written: {report.path} and {report.page.name}")


class Check:
    """Runs parts; device: `cuda`, or `cpu` for a rehearsal."""

    def __init__(self, device: str, report: Report, scrap: Path) -> None:
        self.device, self.report, self.scrap = device, report, scrap

    def run(self, part: Part) -> Result:
        """Run a part and add its result to the report."""
        result = Result(part.letter, part.title)
        if reason := self.why_not(part):
            result.state, result.reason = "skipped", reason
        else:
            self.measure(part, result)
        self.report.add(result)
        return result

    def why_not(self, part: Part) -> str:
        """The reason why the part cannot run here; empty if it can."""
        if self.device == "cuda" and not machine.gpus():
            return "this machine has no NVIDIA GPU (nvidia-smi finds none, or CUDA_VISIBLE_DEVICES hides them)"
        if lacks := part.lacks:
            return f"not installed: {', '.join(lacks)} (make setup-gpu installs all that the check needs)"
        return without_cuda() if self.device == "cuda" else ""

    def measure(self, part: Part, result: Result) -> None:
        """Run the part's process to its end, and read its notes, however it ended."""
        folder = self.scrap / part.letter
        folder.mkdir()
        command = process.command(part.letter, self.device, folder)
        start = time.monotonic()
        with (folder / "log.txt").open("wb") as log:
            child = subprocess.Popen(
                command, cwd=folder, env=environment(self.device), stdout=log, stderr=log, start_new_session=True
            )
            try:
                code = child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                code = -signal.SIGKILL
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        result.seconds = time.monotonic() - start
        notes.read(folder / process.NOTES, result)
        if code:
            result.state, result.reason = "failed", f"exit code {code}: {last_line(folder / 'log.txt')}"
        result.judge()


def environment(device: str) -> dict[str, str]:
    """The environment of a part's process. The one thread of `tests/conftest.py` is too few for the models of a GPU."""
    inherited = {name: value for name, value in os.environ.items() if device == "cpu" or name != "OMP_NUM_THREADS"}
    return inherited | {"PYTHONPATH": str(ROOT)}


def without_cuda() -> str:
    """The reason why torch cannot compute on the GPU; empty if it can."""
    import torch

    if torch.cuda.is_available():
        return ""
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    return f"torch {torch.__version__} is built {built} and finds no GPU, though nvidia-smi does"


def last_line(log: Path) -> str:
    """The last line that is not empty: for a Python program that failed, its error."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


@pytest.fixture(scope="session")
def check(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Check:
    """The check that all parts share."""
    rehearsal = bool(request.config.getoption("--rehearse", default=False))
    report = request.config.stash[REPORT] = Report(home() / "reports", rehearsal=rehearsal)
    return Check("cpu" if rehearsal else "cuda", report, tmp_path_factory.mktemp("gpu-check"))
