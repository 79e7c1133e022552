"""Replaces the real worker in the scheduler's tests: same records, no training. The environment controls it.

FAKE_FAIL: seeds that fail. FAKE_CRASH: seeds that die before they open an attempt. FAKE_SECONDS: time per step.
FAKE_TRUNCATED: share of truncated responses. FAKE_ILLNESS: what goes wrong in step 2 (`fall_ill`).
"""

import os
import signal
import subprocess
import sys
import time

from mcpo_cli.config import load
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt, owned
from mcpo_cli.runs.journal import Journal, read_json


def main() -> int:
    stopped: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
    folder = run_dir(sys.argv[1])
    spec = load.from_dict(read_json(folder / "spec.json"))
    seed = str(spec.seed)
    if seed in os.environ.get("FAKE_CRASH", "").split(","):
        sys.exit("a library is missing")
    with owned(folder):
        start = max((row["step"] for row in Journal(folder).steps()), default=0)
        attempt = Attempt(folder, spec, start)
        if start == 0:
            evaluate(attempt, spec, 0)
        for step in range(start + 1, spec.train.steps + 1):
            attempt.phase(f"step {step}")
            if step == 2:
                fall_ill(os.environ.get("FAKE_ILLNESS", ""))
            time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
            if stopped:
                attempt.end("interrupted")
                return 130
            if seed in os.environ.get("FAKE_FAIL", "").split(","):
                attempt.end("failed", "the learning rate exploded")
                return 1
            metrics = {"train/accuracy": step / 10, "sanity/truncated": float(os.environ.get("FAKE_TRUNCATED", "0"))}
            attempt.journal.step({"step": step, "time": time.time(), "metrics": metrics})
            if step in eval_steps(spec):
                evaluate(attempt, spec, step)
        attempt.end("done")
    return 0


def fall_ill(how: str) -> None:
    """Hang, leak or let a child leak, by `how`; return at once for any other word."""
    leak = "kept = bytes(range(256)) * 3_000_000; import time; time.sleep(600)"
    if how == "hangs":
        time.sleep(600)
    elif how == "leaks":
        exec(leak)
    elif how == "a child leaks":
        subprocess.run([sys.executable, "-c", leak], check=True)


def evaluate(attempt: Attempt, spec: RunSpec, step: int) -> None:
    """Record an evaluation in which half of all samples are correct."""
    n = spec.eval.samples
    rows = [
        {"step": step, "tier": tier, "problem": str(i), "n": n, "c": n // 2}
        for tier, size in spec.task.tier_sizes(spec.eval.problems).items()
        for i in range(size)
    ]
    attempt.journal.rows("eval", step, rows)


if __name__ == "__main__":
    sys.exit(main())
