"""Real runs of the local engine that take seconds, and everything in their records that two of them must share."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import missing
from mcpo_cli.runs.journal import Journal, Kind, checksum, read_json, read_lines, write_json

METHODS = {"dapo": ["method=dapo"], "mcpo": ["method=mcpo", "method.anchor=previous_step", "method.delta=0"]}
PROBES = ["probe.gradients_every=1", "probe.gradient_prompts=2", "probe.panel=4", "probe.panel_every=2"]
NO_PROBES = ["probe.every=0", "probe.gradients_every=0", "probe.panel_every=0"]
KINDS: tuple[Kind, ...] = ("groups", "eval", "rerolls", "mini_batches", "gradients")


def spec_of(method: str, probes: Sequence[str] = PROBES) -> RunSpec:
    # Two rollouts at a low temperature: some prompts are mastered even by a policy this weak.
    shape = [
        "train.prompts=32",
        "train.mini_batch=8",
        "train.rollouts=2",
        "train.temperature=0.3",
        "train.max_refills=200",
    ]
    quick = ["scale=smoke", "train.steps=4", "train.lr=1e-3", "compute.checkpoint_every=2"]
    return load([*quick, *shape, *METHODS[method], *probes])[0]


def work(home: Path, spec: RunSpec, *killer: str) -> int:
    """Run the worker, or the one that kills itself; returns its exit code."""
    folder = home / "runs" / spec.run_id
    if not (folder / "spec.json").exists():
        write_json(folder / "spec.json", spec.to_dict())
    module = "tests.e2e.killer" if killer else "mcpo_cli.scheduling.worker"
    environment = {**os.environ, "MCPO_HOME": str(home), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, spec.run_id, *killer]
    return subprocess.run(command, env=environment, check=False, capture_output=True).returncode


def records(home: Path, spec: RunSpec) -> dict[str, Any]:
    """Everything that must not differ: metrics without the clock's, rows of every kind, final weights."""
    folder = home / "runs" / spec.run_id
    journal = Journal(folder)
    assert not missing(folder, spec)
    clocks = ("perf/", "cost/seconds")
    steps = [
        (row["step"], {name: value for name, value in row["metrics"].items() if not name.startswith(clocks)})
        for row in journal.steps()
    ]
    policy = journal.attempts()[-1] / "policy" / "model.safetensors"
    rows = {kind: {step: list(read_lines(path)) for step, path in journal.files(kind).items()} for kind in KINDS}
    return {"steps": steps, **rows, "policy": checksum(policy)}


def differences(expected: dict[str, Any], found: dict[str, Any]) -> tuple[int, int]:
    """Records of `expected` that `found` lacks, and those of `found` that are others: (lost, wrong)."""
    lost = wrong = 0
    for kind, rows in expected.items():
        if kind == "policy":
            wrong += found[kind] != rows
            continue
        before, after = dict(rows), dict(found[kind])
        lost += len(before.keys() - after.keys()) + sum(
            max(0, len(before[step]) - len(after[step])) for step in before.keys() & after.keys()
        )
        wrong += sum(before.get(step) != row for step, row in after.items()) + len(found[kind]) - len(after)
    return lost, wrong


def torn(run_dir: Path) -> int:
    """Files of a run that a reader would take for whole and that are not: cut short, or empty."""
    found = 0
    for path in run_dir.glob("attempt_*/*/step_*.jsonl"):
        content = path.read_bytes()
        found += not content.endswith(b"\n") or not list(read_lines(path))
    for path in run_dir.glob("**/*.json"):
        if not any(part.startswith(".") for part in path.relative_to(run_dir).parts):
            found += not read_json(path)
    return found
