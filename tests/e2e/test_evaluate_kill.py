"""A killed evaluation continues where it stopped: no sample is drawn twice or lost, and the result is the same."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import models

pytestmark = pytest.mark.slow
MCPO = (sys.executable, "-m", "mcpo_cli.main")
PROBLEMS = 120
"""Problems of each tier; far more than are sampled before the last signal."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.untrained(tmp_path / "tiny")


class Evaluation:
    """`mcpo evaluate` in a separate home."""

    def __init__(self, home: Path, model: Path) -> None:
        self.home = home
        words = ["evaluate", str(model), "--benchmarks", "arithmetic", "--limit", str(PROBLEMS), "n=4", "max_tokens=20"]
        self.command = [*MCPO, *words, "compute.tracking_uri=offline", "--json"]
        self.env = os.environ | {"MCPO_HOME": str(home), "OMP_NUM_THREADS": "1"}

    def finish(self) -> Any:
        done = subprocess.run(self.command, env=self.env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def end_by(self, number: signal.Signals, after: int) -> int:
        """Send the signal `number` once `after` problems are sampled; returns the exit code."""
        process = subprocess.Popen(self.command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(self.paths()) < after:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.02)
        process.send_signal(number)
        return process.wait(300)

    def paths(self) -> list[Path]:
        """Every whole file of samples."""
        return list(self.home.glob("evals/*/samples/*/*.json.gz"))

    def samples(self) -> dict[str, tuple[int, bytes]]:
        """The same: when each was written, and what is in it."""
        return {
            f"{path.parent.name}/{path.name}": (path.stat().st_mtime_ns, path.read_bytes()) for path in self.paths()
        }


def test_killed_at_any_moment_it_ends_as_an_undisturbed_one(tmp_path: Path, model: Path) -> None:
    undisturbed = Evaluation(tmp_path / "a", model)
    wanted = undisturbed.finish()
    disturbed = Evaluation(tmp_path / "b", model)
    before: dict[str, tuple[int, bytes]] = {}
    for number, after in ((signal.SIGKILL, 3), (signal.SIGTERM, 45), (signal.SIGINT, 70), (signal.SIGKILL, 100)):
        code = disturbed.end_by(number, after)
        assert code == (130 if number != signal.SIGKILL else -signal.SIGKILL)
        now = disturbed.samples()
        assert before.items() <= now.items(), "a problem was sampled again, or lost"
        before = now
    found = disturbed.finish()
    after_all = disturbed.samples()
    assert before.items() <= after_all.items()
    assert len(after_all) == 3 * PROBLEMS
    contents = {name: content for name, (_, content) in after_all.items()}
    assert contents == {name: content for name, (_, content) in undisturbed.samples().items()}
    assert found["benchmarks"] == wanted["benchmarks"]
    assert found["eval_id"] == wanted["eval_id"]
