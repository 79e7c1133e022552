"""Runs that were never trained: journals written by the project's own writers, with made-up results."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import McpoError
from mcpo_cli.home import run_dir
from mcpo_cli.methods import query_weight
from mcpo_cli.methods.mcpo import Mcpo
from mcpo_cli.records import AXES, EvalRow, GradientRow, GroupRow, MiniBatchRow, RerollRow
from mcpo_cli.report.builder import ArtifactBuilder, BuiltArtifact
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import JournalWriter, write_atomic

TIERS = {"k2-3": 0.7, "k5-6": 0.4, "k7-8": 0.1}


def build(name: str, plan: Plan, home: Path) -> BuiltArtifact:
    """The artifact `name` from the runs of `plan`, below `home`."""
    return ArtifactBuilder({plan.suite: plan}, home / "reports", plan.runs[0].spec.scale).build(name)


class ThisProcess(Executor):
    """In place of helper processes, which take seconds to start: works in this process."""

    def __init__(self, number: int) -> None: ...

    def submit(self, work: Callable[..., Any], /, *words: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*words, **options))
        except McpoError as error:
            future.set_exception(error)
        return future


def table1(*overrides: str) -> Plan:
    """Table 1 at its smallest on one model, with done runs."""
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", *overrides], "mcpo reproduce table1")
    write_runs(plan)
    return plan


def write_runs(plan: Plan, dirty: bool | None = False, *, probed: bool = False) -> None:
    """Write a done run for every run of `plan`; `dirty=None` leaves the provenance out."""
    for run in plan.runs:
        write_run(run.spec, dirty, probed=probed)


def write_run(spec: RunSpec, dirty: bool | None = False, *, probed: bool = False) -> None:
    """Write a done run: its numbers are a function of method, model and seed, and improve slightly with the steps.

    probed: with the rows that probes read, at the steps that `spec.probe` names, and with more metrics.
    """
    rng = np.random.default_rng([spec.seed, *_kind(spec)])
    attempt, history = Attempt(run_dir(spec.run_id), spec, start_step=0), dict[int, list[GroupRow]]()
    if dirty is not None:
        write_atomic(attempt.folder / "provenance.json", json.dumps({"commit": "0" * 40, "dirty": dirty}))
    for step in range(spec.train.steps + 1):
        if step:
            groups = _groups(spec, step, rng)
            attempt.journal.rows("groups", step, groups)
            metrics = _metrics(spec, groups, probed) | cost(spec, step)
            attempt.journal.step({"step": step, "time": float(step), "metrics": metrics})
            history[step] = groups
            if probed:
                _probe(spec, history, attempt.journal)
        if step in eval_steps(spec):
            attempt.journal.rows("eval", step, _eval(spec, step, rng))
    attempt.end("done")


def has_hinge(spec: RunSpec) -> bool:
    """True if the run's loss penalises drift on mastered prompts."""
    return isinstance(spec.method, Mcpo) and spec.method.penalises_drift


def _metrics(spec: RunSpec, groups: list[GroupRow], probed: bool) -> dict[str, float]:
    p_P = np.array([group["p"] for group in groups])
    metrics = {
        "train/accuracy": p_P.mean(),
        "train/entropy": 1 / groups[0]["step"],
        "mastery/mastered": (p_P == 1).mean(),
        "mastery/all_wrong": (p_P == 0).mean(),
    }
    # Undefined for a method without a hinge, and at a step in which it is inactive.
    if spec.method.name == "mcpo" and groups[0]["step"] % 2 == 0:
        metrics["train/hinge_loss"] = 0.25
    if probed:
        metrics |= {"train/grad_norm": 2 / groups[0]["step"], "weight/effective_sample": 10 * (p_P * (1 - p_P)).sum()}
        if has_hinge(spec):
            metrics |= {"hinge/prompts_felt": 0.5, "hinge/tokens_active": 0.1 * groups[0]["step"]}
    return {name: float(value) for name, value in metrics.items()}


def cost(spec: RunSpec, step: int) -> dict[str, float]:
    """Cost of the first `step` global steps: tokens and seconds are made up, rollouts and gradient steps are not."""
    train = spec.train
    rollouts, gradient_steps = train.prompts * train.rollouts, train.prompts // train.mini_batch
    of_one = (rollouts, 8 * rollouts, 10 * rollouts, gradient_steps, 1e9, 2.0)
    return {name: float(step * value) for name, value in zip(AXES, of_one, strict=True)}


def _kind(spec: RunSpec) -> bytes:
    """Seeds for the numbers of one kind of run; not from its id, which changes when the identity's schema does."""
    return f"{spec.method.label} {spec.model.name}".encode()


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
    sizes = spec.task.tier_sizes(spec.eval.problems)
    tiers = {tier: (TIERS.get(tier, 0.4), size) for tier, size in sizes.items()}
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


def _probe(spec: RunSpec, history: Mapping[int, list[GroupRow]], journal: JournalWriter) -> None:
    """The rows that probes read for the last step of `history`; numbers of other rows do not depend on them."""
    step, probe, train = max(history), spec.probe, spec.train
    rng = np.random.default_rng([step, spec.seed, *_kind(spec)])
    rolls = [
        (origin, row["prompt"])
        for origin, groups in history.items()
        if probe.every and origin % probe.every == 0 and step - origin in probe.lags
        for row in [row for row in groups if row["p"] == 1][: probe.prompts]
    ]
    if probe.panel_every and (step - 1) % probe.panel_every == 0:
        rolls += [(0, f"panel {i}") for i in range(probe.panel)]
    if rolls:
        journal.rows("rerolls", step, [_reroll(spec, step, origin, prompt, rng) for origin, prompt in rolls])
    if probe.gradients_every and (step - 1) % probe.gradients_every == 0:
        journal.rows("gradients", step, [_gradient(spec, row, rng) for row in history[step] if row["p"] > 0])
    sizes = range(train.prompts // train.mini_batch)
    journal.rows("mini_batches", step, [_mini_batch(spec, step, place + 1) for place in sizes])


def _reroll(spec: RunSpec, step: int, origin: int, prompt: str, rng: np.random.Generator) -> RerollRow:
    n, p = spec.train.rollouts, 0.95 ** (1 + step - origin) if origin else 0.5
    source: Literal["mastered", "panel"] = "mastered" if origin else "panel"
    return RerollRow(step=step, source=source, origin=origin, prompt=prompt, gold="1", n=n, c=int(rng.binomial(n, p)))


def _gradient(spec: RunSpec, group: GroupRow, rng: np.random.Generator) -> GradientRow:
    row = GradientRow(step=group["step"], prompt=group["prompt"], p=group["p"], norm=float(rng.uniform(1, 2)))
    row["with_update"], row["with_mastered"] = 0.5, float(rng.normal(0, 0.1))
    if group["p"] < 1:
        row["weight"] = float(query_weight(spec.method, group["p"]) + rng.normal(0, 0.01))
        row["residual"] = 0.0
    return row


def _mini_batch(spec: RunSpec, step: int, number: int) -> MiniBatchRow:
    """A row of a gradient step; a hinge is active only in later mini-batches."""
    sums = {"train/policy_loss": [0.1 / (step + number), 1.0]}
    if has_hinge(spec):
        later = float(number > 1)
        sums |= {"train/hinge_loss": [0.01 * later, 1.0], "hinge/prompts_felt": [later, 2.0]}
        sums |= {"hinge/tokens_active": [3 * later, 20.0]}
    return MiniBatchRow(step=step, mini_batch=number, sums=sums)
