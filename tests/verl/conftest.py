"""Real runs of verl on a CPU: a start takes over a minute, so a run tests several things if it can."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.backends.verl import processes
from mcpo_cli.runs.journal import Journal, read_json
from tests.verl import LEAN

ROOT = Path(__file__).resolve().parents[2]
TOY = (
    "scale=verl-cpu",
    "cluster.attention=sdpa",
    "warmup.batch=64",
    "warmup.target_accuracy=0.5",
    "warmup.max_steps=4000",
)
"""Settings with which half the answers to short problems are correct, so that every kind of group occurs."""
TRAINED = ("train/", "mastery/", "hinge/", "weight/", "sampling/")
"""Prefixes of the metrics of a step that depend only on the training, not on the machine."""
PATIENCE = 1200.0
"""Seconds to wait for an event: many times its duration on an idle machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files with whole runs first, so that no process is left with one while the other is idle."""
    runs = Counter(item.path for item in items if "runs" in item.fixturenames or item.get_closest_marker("slow"))
    items.sort(key=lambda item: -runs[item.path])


class Runs:
    """`mcpo` in a separate home, except for the base policies, which all homes share."""

    def __init__(self, home: Path, base_policies: Path) -> None:
        self.home, self.started = home, list["subprocess.Popen[str]"]()
        (home / "cache").symlink_to(base_policies)
        inherited = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
        # tests.verl.cpu is found there, from any working folder.
        path = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self.env = {**inherited, **path, **LEAN, "MCPO_HOME": str(home)}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start `mcpo` with these arguments."""
        command = [sys.executable, "-m", "mcpo_cli.main", *arguments]
        process = subprocess.Popen(
            command, cwd=self.home, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run `mcpo` with these arguments to its end."""
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(list(arguments), process.returncode, said, "")

    def json(self, *arguments: str) -> Any:
        """The document that `--json` prints last."""
        result = self(*arguments, "--json")
        return json.loads(result.stdout[result.stdout.index("\n{") if "\n{" in result.stdout else 0 :])

    def add_plug_in(self, page: str, name: str) -> None:
        """Add the code that a page of the documentation shows to the plug-ins of later commands."""
        sources = re.findall(r"```python\n(.*?)```", (ROOT / f"docs/{page}.md").read_text(encoding="utf-8"), re.DOTALL)
        (source,) = [one for one in sources if f'= "{name}"' in one]
        (self.home / "plug-ins").mkdir()
        (self.home / "plug-ins" / f"{name}.py").write_text(source, encoding="utf-8")
        self.env["MCPO_PLUGINS"] = str(self.home / "plug-ins")

    def folder(self, label: str) -> Path:
        """The folder of the one run of the method `label`."""
        (found,) = self.home.glob(f"runs/{label}-toy-*")
        return found

    def begun(self, label: str, process: "subprocess.Popen[str]") -> Path:
        """That folder, once `process` has begun the run's first attempt."""
        wait(lambda: list(self.home.glob(f"runs/{label}-toy-*/attempt_1")) != [], process)
        return self.folder(label)


def wait(condition: Callable[[], bool], process: "subprocess.Popen[str] | None" = None) -> None:
    """Wait until `condition` holds, at most as long as `process`, which is to fulfil it, lives."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process and process.poll() is not None and not condition():
            said, _ = process.communicate()
            pytest.fail(
                f"it ended with exit code {process.returncode}, and what was waited for never happened:\n{said}"
            )
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def status(folder: Path) -> dict[str, Any]:
    """status.json of the newest attempt; empty before the first."""
    attempts = Journal(folder).attempts()
    return dict(read_json(attempts[-1] / "status.json")) if attempts else {}


def phase(folder: Path) -> str:
    """The phase that the newest attempt recorded."""
    return str(status(folder).get("phase", ""))


def nobody_is_left(folder: Path) -> bool:
    """True if no process of the run lives."""
    return not [p for p in processes.marked(str(folder)) if p.status() != psutil.STATUS_ZOMBIE]


def logged(home: Path, folder: Path, name: str) -> list[tuple[int, float]]:
    """Steps and values of a metric in the MLflow store."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (found,) = client.search_runs(experiments, f"tags.`mcpo.run_id` = '{folder.name}'")
    return [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, name)]


@pytest.fixture
def runs(tmp_path: Path, base_policies: Path) -> Iterator[Runs]:
    """A separate home for the test."""
    with ended(Runs(tmp_path, base_policies)) as found:
        yield found


@contextmanager
def ended(found: Runs) -> Iterator[Runs]:
    """End the processes that a failed test leaves running."""
    try:
        yield found
    finally:
        for process in found.started:
            process.kill()
            process.wait()
        # Without its parent a worker stops, and so do the processes that it started.
        for folder in found.home.glob("runs/*"):
            processes.end(str(folder))
