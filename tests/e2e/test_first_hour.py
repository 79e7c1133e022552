"""README and tutorial, line by line: in an environment with only the wheel, in an empty folder."""

import json
import os
import re
import resource
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.pages import sessions, shows

pytestmark = pytest.mark.slow
ELSEWHERE = ("pip ", "make ")
"""Commands that a reader types in a checkout, not in this folder: tests/unit/test_install.py has them."""
STAGES = "--until decided"
"""An option that trains up to 24 runs: tests/cli/test_compare.py has it, with made-up runs."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Reader:
    """Types the commands of a page."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("MCPO_", "MLFLOW_"))}
        self.env = {**self.env, "PATH": f"{binaries}{os.pathsep}{self.env['PATH']}", "HF_HUB_OFFLINE": "1"}
        self.env.pop("PYTHONPATH", None)

    def types(self, command: str) -> str:
        """Run one line and return its output; `mcpo ui` serves until Ctrl-C."""
        words = [word.replace("examples/", f"{ROOT}/examples/") for word in shlex.split(command, comments=True)]
        if words[:2] == ["mcpo", "ui"]:
            return self._until_up(words)
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    def _until_up(self, words: list[str]) -> str:
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            port = str(any_port.getsockname()[1])
        command = [*words, "--port", port]
        server = subprocess.Popen(command, cwd=self.folder, env=self.env, stderr=subprocess.PIPE, text=True)
        assert server.stderr
        shown = next((line for line in server.stderr if f"http://127.0.0.1:{port}" in line), "")
        server.terminate()  # like Ctrl-C, which a shell may let its children ignore
        assert server.wait(60) == 0
        assert shown
        return shown


def lines(text: str) -> Iterator[str]:
    """The commands of a block."""
    for line in text.splitlines():
        if line.startswith("$ "):
            yield line.removeprefix("$ ")


def check_shown(page: str, printed: dict[str, str]) -> None:
    """Check that every output on a page is the command's output, apart from numbers."""
    found = [(command, shown) for session in sessions(page) for command, shown in session if shown]
    assert found
    for command, shown in found:
        assert shows(shown, printed[command], numbers=False), f"{command}\n{printed[command]}"


def estimate(dry_run: str) -> int:
    """The CPU seconds that follow from `about 0:34 left, 2 at a time`; they hold also while other programs run."""
    (promised,) = re.findall(r"about (\S+) left, 2 at a time", dry_run)
    total = 0
    for part in promised.split(":"):
        total = 60 * total + int(part)
    return 2 * total


def of_children() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_readme(installed: Path, tmp_path: Path) -> None:
    reader, shown, promised = Reader(installed, tmp_path), dict[str, str](), 0
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    for kind, text in BLOCK.findall(page):
        if kind == "python":
            (tmp_path / "snippet.py").write_text(text, encoding="utf-8")
            assert "mcpo" in reader.types("python snippet.py").lower()
        for command in lines(text) if kind == "console" else ():
            if command.startswith(ELSEWHERE):
                continue
            before = of_children()
            shown[command] = reader.types(command)
            if "--dry-run" in command:
                promised = estimate(shown[command])
            elif promised:
                assert promised / 2 < of_children() - before < 2 * promised
                promised = 0
    assert {command.split()[1] for command in shown} >= {"train", "reproduce", "ui", "compare"}
    check_shown(page, shown)
    assert list((tmp_path / "mcpo-results" / "reports").glob("*/table1.csv"))
    assert "undecided" in shown["mcpo compare base new"]


def test_the_tutorial(installed: Path, tmp_path: Path) -> None:
    reader, page = Reader(installed, tmp_path), (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    names = re.findall(r"`(\w+\.yaml)`", page)
    suites = dict.fromkeys(names)
    blocks = BLOCK.findall(page)
    for name, suite in zip(suites, [text for kind, text in blocks if kind == "yaml"], strict=True):
        (tmp_path / name).write_text(suite, encoding="utf-8")
    typed = [command for kind, text in blocks if kind == "console" for command in lines(text)]
    assert len(typed) >= 8
    typed = [command for command in typed if STAGES not in command]
    shown, used = dict[str, str](), dict[str, float]()
    for command in typed:
        before = of_children()
        shown[command] = reader.types(command)
        used[command.partition("#")[0].strip()] = of_children() - before
    check_shown(page, shown)
    (planned,) = [text for command, text in shown.items() if command.startswith("mcpo train hinge.yaml --dry-run")]
    promised = estimate(planned)
    assert promised / 2 < used["mcpo ablate hinge.yaml"] < 2 * promised
    assert list((tmp_path / "mcpo-results" / "reports").rglob("hinge*.csv"))
    # The numbers are informative: no arm fails all problems or solves all of them.
    runs = json.loads(reader.types("mcpo train hinge.yaml --json"))["runs"]
    assert len(runs) == 6
    assert all(0.1 < run["metrics"]["train/accuracy"] < 0.99 for run in runs)
