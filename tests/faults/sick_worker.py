"""A worker that writes records without training, until its second step, where it fails in the way that SICK names."""

import os
import subprocess
import sys
import time

from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.home import run_dir
from mcpo_cli.runs import catalog
from mcpo_cli.runs.attempts import Attempt, owned
from mcpo_cli.runs.journal import Journal

LEAK = "kept = bytes(range(256)) * 3_000_000; import time; time.sleep(600)"


def main() -> None:
    folder = run_dir(sys.argv[1])
    spec = catalog.spec(folder)
    with owned(folder):
        start = max((row["step"] for row in Journal(folder).steps()), default=0)
        attempt = Attempt(folder, spec, start)
        for step in range(start, spec.train.steps + 1):
            attempt.phase(f"step {step}")
            if step == 2:
                fall_ill(os.environ.get("SICK", ""))
            if step > start:
                attempt.journal.step({"step": step, "time": time.time(), "metrics": {"train/accuracy": step / 10}})
                attempt.durable(step)
            if step in eval_steps(spec):
                rows = [
                    {"step": step, "tier": tier, "problem": str(i), "n": spec.eval.samples, "c": 1}
                    for tier, size in spec.task.tier_sizes(spec.eval.problems).items()
                    for i in range(size)
                ]
                attempt.journal.rows("eval", step, rows)
        attempt.end("done")


def fall_ill(how: str) -> None:
    """Hang, leak or let a child leak, by `how`; return at once for any other word."""
    if how == "hangs":
        time.sleep(600)
    elif how == "leaks":
        kept = bytes(range(256)) * 3_000_000
        time.sleep(600)
        del kept
    elif how == "a child leaks":
        subprocess.run([sys.executable, "-c", LEAK], check=True)


if __name__ == "__main__":
    main()
