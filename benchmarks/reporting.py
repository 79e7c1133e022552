"""Time to load many long runs and build every artifact and the report from them.

`python -m benchmarks.reporting 3 10 29` records rows with these numbers of seeds.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import growth, rows
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.load import load
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.records import AXES
from mcpo_cli.report import artifacts
from mcpo_cli.runs.journal import Journal, dumps, read_json, seal

STEPS = 1000
METRICS = 60
ROW_STEPS = 20
"""Steps with rows of prompts: as many as a run of the toy scale has. Every step has metrics."""
SEEDS = (3, 5, 8)
"""Seeds of each arm: three as in the tables, and more to show the growth of cost."""
KINDS = ("groups", "rerolls", "mini_batches", "gradients")


def overrides(seeds: int) -> list[str]:
    """The settings of runs with that many seeds."""
    named = ",".join(map(str, range(seeds)))
    return [f"seed={named}", f"train.steps={STEPS}", "eval.every=100", "eval.problems=34"]


def plans(seeds: int) -> dict[str, Plan]:
    """The plans that `mcpo reproduce all --built` reads: runs of seven arms and models."""
    suites = artifacts.suites(artifacts.names(artifacts.ALL))
    return {suite: from_suite(suite, overrides(seeds), "mcpo reproduce all") for suite in suites}


def measure(numbers: Sequence[int]) -> Iterator[rows.Measurement]:
    """What `mcpo reproduce all --built` takes on generated journals by number of seeds, at first and again."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"MCPO_HOME": folder}
        template = _template(environment)
        for seeds in numbers:
            specs = {run.spec.run_id: run.spec for plan in plans(seeds).values() for run in plan.runs}
            for run_id, spec in specs.items():
                if not (run_dir := Path(folder) / "runs" / run_id).exists():
                    _write(run_dir, spec, template)
            report = ("reproduce", "all", "--built", *overrides(seeds), "compute.tracking_uri=offline")
            for built in ("nothing", "everything"):
                yield (
                    "report of long runs",
                    {"runs": len(specs), "steps": STEPS, "built": built},
                    growth.mcpo(environment, *report).numbers,
                )


def _template(environment: dict[str, str]) -> Journal:
    """A real run, whose rows the generated runs repeat."""
    settings = ["method=mcpo", "seed=0", f"train.steps={ROW_STEPS}", "compute.tracking_uri=offline"]
    subprocess.run([sys.executable, "-m", "mcpo_cli.main", "train", *settings], env=environment, check=True)
    (spec,) = load(settings)
    return Journal(Path(environment["MCPO_HOME"]) / "runs" / spec.run_id)


def _write(run_dir: Path, spec: RunSpec, template: Journal) -> None:
    attempt = run_dir / "attempt_1"
    attempt.mkdir(parents=True)
    rng = random.Random(spec.run_id)
    (attempt / "metrics.jsonl").write_text("".join(_metrics(template, rng)))
    for kind in KINDS:
        for step, path in template.files(kind).items():
            _copy(path, attempt / kind, step * STEPS // ROW_STEPS)
    last = max(template.files("eval").values())
    problems = _thinned(last, spec.eval.problems)
    for step in eval_steps(spec):
        rows = [row | {"step": step, "c": rng.randint(0, row["n"])} for row in problems]
        _rows(attempt / "eval", step, rows)
    (attempt / "spec.json").write_text(json.dumps(spec.to_dict()))
    status = read_json(template.attempts()[-1] / "status.json") | {"start_step": 0, "durable_step": STEPS}
    (attempt / "status.json").write_text(json.dumps(status))
    (attempt / "provenance.json").write_text(json.dumps({"commit": "0" * 40, "dirty": False}))
    seal(attempt)


def _metrics(template: Journal, rng: random.Random) -> Iterator[str]:
    rows = template.steps()
    for step in range(1, STEPS + 1):
        row = rows[(step - 1) * ROW_STEPS // STEPS]
        metrics = {name: value * rng.uniform(0.9, 1.1) for name, value in row["metrics"].items()}
        # Totals of the run so far, which never fall, as in real runs.
        metrics |= {name: rows[-1]["metrics"][name] * step / STEPS for name in AXES}
        metrics |= {f"more/{i}": rng.random() for i in range(METRICS - len(metrics))}
        yield dumps({"step": step, "time": row["time"] + step, "metrics": metrics}) + "\n"


def _copy(path: Path, folder: Path, step: int) -> None:
    origin = int(path.stem.removeprefix("step_"))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        # A cohort is resampled one step later, as in the run that is repeated.
        shift = step - origin
        row["step"] = step
        if row.get("origin"):
            row["origin"] += shift
    _rows(folder, step, rows)


def _rows(folder: Path, step: int, found: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"step_{step:06d}.jsonl").write_text("".join(dumps(row) + "\n" for row in found))


def _thinned(path: Path, problems: int) -> list[dict[str, Any]]:
    """The first `problems` rows of each tier."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["tier"], []).append(row)
    return [row for rows in found.values() for row in rows[:problems]]


if __name__ == "__main__":
    for measurement in measure([int(word) for word in sys.argv[1:]]):
        print(rows.record(*measurement), flush=True)
