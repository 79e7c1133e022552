"""Real runs of verl on a processor, in a home that they share: a start takes a minute, the base policy is made once."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.backends.verl import processes
from mcpo_cli.runs.journal import Journal, read_json

ROOT = Path(__file__).resolve().parents[2]
TOY = (
    "scale=verl-cpu",
    "cluster.attention=sdpa",
    "warmup.batch=64",
    "warmup.target_accuracy=0.5",
    "warmup.max_steps=4000",
)
"""Half the answers to short problems are right, so that every kind of group occurs."""


class Runs:
    """`mcpo` in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.started = home, list["subprocess.Popen[str]"]()
        inherited = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
        # Where tests.verl.cpu is found, whatever the working folder.
        path = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self.env = {**inherited, **path, "MCPO_HOME": str(home)}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """`mcpo` with these arguments."""
        command = [sys.executable, "-m", "mcpo_cli.main", *arguments]
        process = subprocess.Popen(
            command, cwd=self.home, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The same, to its end."""
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=600)
        return subprocess.CompletedProcess(list(arguments), process.returncode, said, "")

    def json(self, *arguments: str) -> Any:
        """The document that `--json` prints last."""
        result = self(*arguments, "--json")
        return json.loads(result.stdout[result.stdout.index("\n{") if "\n{" in result.stdout else 0 :])

    def folder(self, label: str) -> Path:
        """The folder of the one run of the method `label`."""
        (found,) = self.home.glob(f"runs/{label}-toy-*")
        return found


def wait(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Until `condition` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def status(folder: Path) -> dict[str, Any]:
    """status.json of the newest attempt; empty where there is none yet."""
    attempts = Journal(folder).attempts()
    return dict(read_json(attempts[-1] / "status.json")) if attempts else {}


def phase(folder: Path) -> str:
    """What the newest attempt says it does."""
    return str(status(folder).get("phase", ""))


def nobody_is_left(folder: Path) -> bool:
    """Whether no process of the run lives."""
    return not [p for p in processes.marked(str(folder)) if p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="session")
def home_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verl")


@pytest.fixture
def runs(home_of_runs: Path) -> Iterator[Runs]:
    """The same home for every test."""
    yield from _ended(Runs(home_of_runs))


@pytest.fixture
def runs_apart(home_of_runs: Path, tmp_path: Path) -> Iterator[Runs]:
    """A home of the test's own, which has nothing but the base policy in common with the others."""
    cache = home_of_runs / "cache"
    cache.mkdir(exist_ok=True)
    (tmp_path / "cache").symlink_to(cache)
    yield from _ended(Runs(tmp_path))


def _ended(found: Runs) -> Iterator[Runs]:
    """What a failed test leaves running is ended."""
    yield found
    for process in found.started:
        process.kill()
        process.wait()
    # Without its parent a worker stops, and so does what it started.
    for folder in found.home.glob("runs/*"):
        processes.end(str(folder))
