"""Time in which `mcpo runs sync` uploads runs to a new SQLite store, and again when nothing is new.

`python -m benchmarks.syncing 20 100 300` prints the seconds for these numbers of runs, and their growth.
"""

import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import growth
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import write_json
from tests import store_runs

STEPS = 20
"""Global steps of a run, as many as the toy scale has."""
METRICS = 60
"""Metrics of a step, as many as a run of MCPO has."""
SUITE_RUNS = 12
"""Runs that share a command: the runs of Table 1."""
PROMPTS = 64
SIZES = (21, 50, 100)
"""Numbers of runs: as many as a suite has, and more to show the growth of cost."""


def measure(numbers: Sequence[int]) -> dict[str, dict[str, float]]:
    """Number of runs -> seconds of `mcpo runs sync`, for the first time and again; and the growth of CPU seconds.

    numbers: at least two different numbers of runs.
    """
    found = {}
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"MCPO_HOME": folder}
            environment.pop("MLFLOW_TRACKING_URI", None)
            write_runs(Path(folder), number)
            first, again = (growth.mcpo(environment, "runs", "sync") for _ in range(2))
            seconds = {"seconds": first[0], "processor_seconds": first[1]}
            found[str(number)] = {**seconds, "again_seconds": again[0], "again_processor_seconds": again[1]}
    of_processor = {number: found[str(number)]["processor_seconds"] for number in numbers}
    return found | {"growth": growth.fitted(of_processor)}


def write_runs(home: Path, number: int) -> None:
    """Write `number` done runs of `STEPS` steps below `home`, `SUITE_RUNS` per command."""
    os.environ["MCPO_HOME"] = str(home)
    for seed in range(number):
        spec = store_runs.spec(seed, steps=STEPS)
        attempt, rng = Attempt(run_dir(spec.run_id), spec, 0), random.Random(seed)
        for step in range(1, STEPS + 1):
            metrics = {f"train/{i}": rng.random() for i in range(METRICS)}
            attempt.journal.step({"step": step, "time": 1000.0 + step, "metrics": metrics})
            attempt.journal.rows("groups", step, [{"step": step, "p": rng.random()} for _ in range(PROMPTS)])
        store_runs.evaluate(attempt, *eval_steps(spec))
        attempt.durable(STEPS)
        write_json(attempt.folder / "provenance.json", {"commit": "0" * 40, "dirty": False})
        attempt.end("done")
        command = f"mcpo train group={seed // SUITE_RUNS}"
        plan = Plan("train", command, (PlannedRun(spec.method.label, spec),))
        write_json(run_dir(spec.run_id) / "spec.json", spec.to_dict())
        origin: dict[str, Any] = {"suite": plan.suite, "arm": plan.cells[0].arm, "command": command}
        write_json(run_dir(spec.run_id) / "origin.json", origin)


if __name__ == "__main__":
    print(json.dumps(measure([int(word) for word in sys.argv[1:]]), indent=2))
