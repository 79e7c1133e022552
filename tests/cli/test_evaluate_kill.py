"""A killed evaluation continues where it stopped: no sample is drawn twice or lost, and the result is the same."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests import models
from tests.cli.conftest import MCPO, InProcess

PROBLEMS = 30
"""Problems of each of three tiers; far more than are sampled before the last signal."""


class Evaluation:
    """`mcpo evaluate` in a home of its own."""

    def __init__(self, here: InProcess, home: Path, model: Path) -> None:
        self.here, self.home = here, home
        words = ["evaluate", str(model), "--benchmarks", "arithmetic", "--limit", str(PROBLEMS), "n=2", "max_tokens=12"]
        self.words = [*words, "compute.tracking_uri=offline", "grading.workers=1"]

    def finish(self) -> Any:
        """The document of an evaluation in this process."""
        done = self.here(*self.words, "--json", MCPO_HOME=str(self.home))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def end_by(self, number: signal.Signals, after: int) -> int:
        """Send the signal `number` once `after` problems are sampled; returns the exit code."""
        env = self.here.env | {"MCPO_HOME": str(self.home)}
        null = subprocess.DEVNULL
        with subprocess.Popen([*MCPO, *self.words], env=env, stdout=null, stderr=null) as process:
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


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_as_an_undisturbed_one(here: InProcess, tmp_path: Path) -> None:
    model = models.untrained(tmp_path / "tiny")
    undisturbed, disturbed = (Evaluation(here, tmp_path / name, model) for name in "ab")
    wanted = undisturbed.finish()
    before: dict[str, tuple[int, bytes]] = {}
    for number, after, code in ((signal.SIGKILL, 3, -signal.SIGKILL), (signal.SIGTERM, 15, 130)):
        assert disturbed.end_by(number, after) == code
        now = disturbed.samples()
        assert before.items() <= now.items(), "a problem was sampled again, or lost"
        before = now
    assert 15 <= len(before) < 3 * PROBLEMS
    found = disturbed.finish()
    after_all = disturbed.samples()
    assert before.items() <= after_all.items()
    assert len(after_all) == 3 * PROBLEMS
    contents = {name: content for name, (_, content) in after_all.items()}
    assert contents == {name: content for name, (_, content) in undisturbed.samples().items()}
    assert found["benchmarks"] == wanted["benchmarks"]
    assert found["eval_id"] == wanted["eval_id"]
