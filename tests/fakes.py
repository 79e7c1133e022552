"""Runs that were never trained: journals written by the project's own writers, with made-up results."""

import json
from pathlib import Path

import numpy as np

from mcpo_cli import data
from mcpo_cli.analysis.artifacts import Built, Workshop
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.plan import Plan
from mcpo_cli.runs.attempts import Attempt, eval_steps
from mcpo_cli.runs.home import run_dir
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.store.records import EvalRow, GroupRow

TIERS = {"easy": 0.7, "middle": 0.4, "hard": 0.1}


def build(name: str, plan: Plan, home: Path) -> Built:
    """The artifact `name` from the runs of `plan`, below `home`."""
    return Workshop({plan.suite: plan}, home / "reports", plan.cells[0].spec.scale).build(name)


def write_runs(plan: Plan, dirty: bool | None = False) -> None:
    """Write a done run for every cell of `plan`; `dirty=None` leaves the provenance out."""
    for cell in plan.cells:
        write_run(cell.spec, dirty)


def write_run(spec: RunSpec, dirty: bool | None = False) -> None:
    """Write a done run: its numbers are a function of the run id, and get a little better with the steps."""
    rng = np.random.default_rng([spec.seed, *spec.run_id.encode()])
    attempt = Attempt(run_dir(spec.run_id), spec, start_step=0)
    if dirty is not None:
        write_atomic(attempt.folder / "provenance.json", json.dumps({"commit": "0" * 40, "dirty": dirty}))
    for step in range(spec.train.steps + 1):
        if step:
            groups = _groups(spec, step, rng)
            attempt.journal.rows("groups", step, groups)
            attempt.journal.step({"step": step, "time": float(step), "metrics": _metrics(spec, groups)})
        if step in eval_steps(spec):
            attempt.journal.rows("eval", step, _eval(spec, step, rng))
    attempt.end("done")


def _metrics(spec: RunSpec, groups: list[GroupRow]) -> dict[str, float]:
    p_P = np.array([group["p"] for group in groups])
    metrics = {
        "train/accuracy": p_P.mean(),
        "train/entropy": 1 / groups[0]["step"],
        "mastery/mastered": (p_P == 1).mean(),
        "mastery/all_wrong": (p_P == 0).mean(),
    }
    # Not defined for a method without a hinge, nor at a step in which it feels nothing.
    if spec.method.name == "mcpo" and groups[0]["step"] % 2 == 0:
        metrics["hinge/penalty"] = 0.25
    return {name: float(value) for name, value in metrics.items()}


def _groups(spec: RunSpec, step: int, rng: np.random.Generator) -> list[GroupRow]:
    return [
        {
            "step": step,
            "prompt": f"{step}:{i}",
            "p": float(p),
            "mean_length": 8.0,
            "kept": bool(0 < p < 1),
            "truncated": 0.0,
            "duplicates": 0.0,
        }
        for i, p in enumerate(rng.integers(0, spec.train.rollouts + 1, spec.train.prompts) / spec.train.rollouts)
    ]


def _eval(spec: RunSpec, step: int, rng: np.random.Generator) -> list[EvalRow]:
    n = spec.eval.samples
    if spec.task.name == "math":
        tiers = {name: (0.4, data.get(name).size or 0) for name in spec.task.benchmarks}
    else:
        tiers = {tier: (p, spec.eval.problems) for tier, p in TIERS.items()}
    return [
        {
            "step": step,
            "tier": tier,
            "problem": f"{tier} {i}",
            "n": n,
            "c": int(rng.binomial(n, p + step / spec.train.steps / 10)),
        }
        for tier, (p, problems) in tiers.items()
        for i in range(problems)
    ]
