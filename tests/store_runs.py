"""Runs with known points for the tests of the store, and the contents of a store, by its tables alone."""

import json
import math
import socket
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from sqlalchemy import create_engine, text

from mcpo_cli import methods, tasks
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import Eval, RunSpec, Train
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.trackers.mlflow import Store
from mcpo_cli.trackers.views import DETAILS, FIRST
from tests.fakes import write_runs
from tests.rows import evaluation

TIERS = {"k2-3": [2, 1], "k5-6": [1, 1], "k7-8": [0, 1]}
"""Correct answers, of 2, to the two problems of each tier."""
AVERAGES = (("pass", 1), ("pass", 2), ("best", 2))
"""Means over the tiers, with two samples per problem."""
PASS_AT_1 = {"k2-3": 0.75, "k5-6": 0.5, "k7-8": 0.25}

Points = Counter[tuple[str, str, int]]
"""Number of points by (run id, metric, global step)."""
POINTS = """
select tags.value, metrics.key, metrics.step from metrics
join tags on tags.run_uuid = metrics.run_uuid join runs on runs.run_uuid = metrics.run_uuid
where tags.key = 'mcpo.run_id' and runs.lifecycle_stage = 'active'
"""
STATES = """
select coalesce(run.value, plan.value), runs.status from runs
left join tags as run on run.run_uuid = runs.run_uuid and run.key = 'mcpo.run_id'
left join tags as plan on plan.run_uuid = runs.run_uuid and plan.key = 'mcpo.plan_id'
where runs.lifecycle_stage = 'active'
"""


def spec(seed: int = 0, method: str = "mcpo", steps: int = 4) -> RunSpec:
    return RunSpec(
        method=methods.get(method),
        task=tasks.get("arithmetic"),
        seed=seed,
        train=Train(steps=steps),
        eval=Eval(problems=2, samples=2, every=2),
    )


def plan(*specs: RunSpec, suite: str = "train") -> Plan:
    return Plan(suite, "mcpo train", tuple(PlannedRun(spec.method.label, spec) for spec in specs))


def begin(spec: RunSpec, start: int = 0) -> Attempt:
    folder = run_dir(spec.run_id)
    attempt = Attempt(folder, spec, start)
    write_atomic(folder / "spec.json", json.dumps(spec.to_dict()))
    write_atomic(attempt.folder / "provenance.json", json.dumps({"commit": "c0ffee", "dirty": True}))
    return attempt


def train(attempt: Attempt, steps: range, **metrics: float) -> None:
    for step in steps:
        values = metrics or {"train/accuracy": step / 100, "train/length": 2.0 * step}
        attempt.journal.step({"step": step, "time": 1000.0 + step, "metrics": values})


def evaluate(attempt: Attempt, *steps: int) -> None:
    for step in steps:
        attempt.journal.rows("eval", step, evaluation(step, TIERS, n=2))


def complete(spec: RunSpec) -> None:
    attempt = begin(spec)
    train(attempt, range(1, spec.train.steps + 1))
    evaluate(attempt, *range(0, spec.train.steps + 1, 2))
    attempt.durable(spec.train.steps)
    attempt.end("done")


def made_up(plan: Plan, dirty: bool | None = False, *, probed: bool = False) -> list[str]:
    """Write a done run for every run, as `write_runs` does, with the scheduler's files beside it; returns the ids."""
    write_runs(plan, dirty, probed=probed)
    for run in plan.runs:
        folder = run_dir(run.spec.run_id)
        write_atomic(folder / "spec.json", json.dumps(run.spec.to_dict()))
        origin = {"suite": plan.suite, "arm": run.arm, "command": plan.command}
        write_atomic(folder / "origin.json", json.dumps(origin))
    return [run.spec.run_id for run in plan.runs]


def rows(database: Path | str, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query. database: an SQLite file, or the address of another database."""
    engine = create_engine(f"sqlite:///{database}" if isinstance(database, Path) else database)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(text(query))]
    engine.dispose()
    return found


def points(database: Path | str) -> Points:
    """The points in the store, of any time and value."""
    return Points(rows(database, POINTS))


def in_journals(home: Path, plan: Plan) -> Points:
    """The points that runs of one attempt should have in a store."""
    found = Points()
    for run in plan.runs:
        run_id, attempt = run.spec.run_id, home / "runs" / run.spec.run_id / "attempt_1"
        for line in (attempt / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            finite = [name for name, value in row["metrics"].items() if math.isfinite(float(value))]
            if len(finite) < len(row["metrics"]):
                finite.append("journal/nonfinite")
            finite = [name for name in finite if not name.startswith(DETAILS)]
            finite += [FIRST[name] for name in finite if name in FIRST]
            found.update((run_id, name, row["step"]) for name in finite)
        for path in (attempt / "eval").glob("*.jsonl"):
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            found.update({(run_id, f"eval/{row['tier']}/pass_at_1", row["step"]) for row in rows})
            k = min(8, *(row["n"] for row in rows))
            names = {f"eval/average/{name}" for name in ("pass_at_1", f"pass_at_{k}", f"best_at_{k}")}
            found.update((run_id, name, rows[0]["step"]) for name in (*names, FIRST["eval/average/pass_at_1"]))
    return found


def differences(home: Path, plan: Plan, database: Path | str) -> tuple[int, int]:
    """Points that the store lacks, and errors in it: extra points, and runs that occur twice or have not ended."""
    ids = {run.spec.run_id for run in plan.runs}
    states = defaultdict[str, list[str]](list)
    for name, status in rows(database, STATES):
        states[name].append(status)
    stored = Points({point: count for point, count in points(database).items() if point[0] in ids})
    expected = in_journals(home, plan)
    strange = [name for name in (*ids, plan.plan_id) if states[name] != ["FINISHED"]]
    return (expected - stored).total(), (stored - expected).total() + len(strange)


def expected(spec: RunSpec, steps: range, evaluations: tuple[int, ...]) -> Points:
    names = ("train/accuracy", "train/length", FIRST["train/accuracy"])
    rows = [(spec.run_id, name, step) for name in names for step in steps]
    scores = [*(f"{tier}/pass_at_1" for tier in TIERS), *(f"average/{one}_at_{k}" for one, k in AVERAGES)]
    names = (FIRST["eval/average/pass_at_1"], *(f"eval/{score}" for score in scores))
    return Counter(rows + [(spec.run_id, name, step) for name in names for step in evaluations])


def runs(store: Store, suite: str = "train") -> dict[str, Any]:
    """The runs of a suite in the store: children by run id, parents as `<suite> <plan id>`."""
    client = MlflowClient(store.uri)
    experiment = client.get_experiment_by_name(suite)
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id])
    return {run.data.tags.get("mcpo.run_id") or f"{suite} {run.data.tags['mcpo.plan_id']}": run for run in found}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
