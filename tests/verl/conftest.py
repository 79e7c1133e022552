"""Real runs of verl on a processor, in a home that they share: a start takes a minute, the base policy is made once.

A minute is why a run serves several tests where it can.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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


def logged(home: Path, folder: Path, name: str) -> list[tuple[int, float]]:
    """What the MLflow store has of a metric."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (found,) = client.search_runs(experiments, f"tags.`mcpo.run_id` = '{folder.name}'")
    return [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, name)]


def listening(folder: Path) -> set[str]:
    """The addresses that the run's processes listen on, without the ranks: torch's own rendezvous knows no address."""
    found = set()
    for process in processes.marked(str(folder)):
        with suppress(psutil.Error):
            if "WorkerDict" not in process.name():
                connections = process.net_connections("tcp")
                found |= {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    return found


@pytest.fixture(scope="session")
def home_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verl")


@pytest.fixture
def runs(home_of_runs: Path) -> Iterator[Runs]:
    """The same home for every test."""
    with ended(Runs(home_of_runs)) as found:
        yield found


@pytest.fixture
def runs_apart(home_of_runs: Path, tmp_path: Path) -> Iterator[Runs]:
    """A home of the test's own, which has nothing but the base policy in common with the others."""
    cache = home_of_runs / "cache"
    cache.mkdir(exist_ok=True)
    (tmp_path / "cache").symlink_to(cache)
    with ended(Runs(tmp_path)) as found:
        yield found


@contextmanager
def ended(found: Runs) -> Iterator[Runs]:
    """What a failed test leaves running is ended."""
    try:
        yield found
    finally:
        for process in found.started:
            process.kill()
            process.wait()
        # Without its parent a worker stops, and so does what it started.
        for folder in found.home.glob("runs/*"):
            processes.end(str(folder))


PROBED = (*TOY, "method=reweighted", "train.steps=4", "probe.panel=6", "cluster.gpus=2")
"""At its defaults this method is MCPO; it also records the weights of its groups."""
PANEL = "probe.panel_every=2"


@dataclass(frozen=True)
class Resumed:
    """A run of the settings PROBED and PANEL, killed in its third step and continued to its end."""

    runs: Runs
    folder: Path
    listening: set[str]
    """Addresses that its processes listened on in the third step."""
    state: str
    """Its state after the kill."""


@pytest.fixture(scope="session")
def resumed(home_of_runs: Path) -> Iterator[Resumed]:
    with ended(Runs(home_of_runs)) as runs:
        killed = runs.start("train", *PROBED, PANEL)
        wait(lambda: list(runs.home.glob("runs/reweighted-toy-*/attempt_1")) != [])
        folder = runs.folder("reweighted")
        wait(lambda: status(folder).get("durable_step") == 2 and "step 3 of" in phase(folder), 600)
        addresses = listening(folder)
        os.kill(status(folder)["pid"], signal.SIGKILL)
        assert killed.wait(60) != 0
        wait(lambda: nobody_is_left(folder), 60)
        state = runs.json("runs", "show", folder.name)["state"]
        result = runs("train", *PROBED, PANEL)
        assert result.returncode == 0, result.stdout
        yield Resumed(runs, folder, addresses, state)
