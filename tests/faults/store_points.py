"""Compares the runs in a database store with their journals, without the code that uploaded them."""

import json
import math
from collections import Counter, defaultdict
from pathlib import Path

from sqlalchemy import create_engine, text

from mcpo_cli.config.plan import Plan

Points = Counter[tuple[str, str, int]]
"""Number of points by (run id, metric, global step)."""
QUERY = """
select tags.value, metrics.key, metrics.step from metrics
join tags on tags.run_uuid = metrics.run_uuid join runs on runs.run_uuid = metrics.run_uuid
where tags.key = 'mcpo.run_id' and runs.lifecycle_stage = 'active'
"""
RUNS = """
select coalesce(run.value, plan.value), runs.status from runs
left join tags as run on run.run_uuid = runs.run_uuid and run.key = 'mcpo.run_id'
left join tags as plan on plan.run_uuid = runs.run_uuid and plan.key = 'mcpo.plan_id'
where runs.lifecycle_stage = 'active'
"""


def in_journals(home: Path, plan: Plan) -> Points:
    """The points that runs of one attempt should have in a store."""
    found = Points()
    for cell in plan.cells:
        run_id, attempt = cell.spec.run_id, home / "runs" / cell.spec.run_id / "attempt_1"
        for line in (attempt / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            finite = [name for name, value in row["metrics"].items() if math.isfinite(float(value))]
            if len(finite) < len(row["metrics"]):
                finite.append("journal/nonfinite")
            if "train/accuracy" in finite:
                finite.append("accuracy/rollouts")
            found.update((run_id, name, row["step"]) for name in finite)
        for path in (attempt / "eval").glob("*.jsonl"):
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            found.update({(run_id, f"eval/{row['tier']}/pass_at_1", row["step"]) for row in rows})
            k = min(8, *(row["n"] for row in rows))
            names = {f"eval/average/{name}" for name in ("pass_at_1", f"pass_at_{k}", f"best_at_{k}")}
            found.update((run_id, name, rows[0]["step"]) for name in (*names, "accuracy/held_out"))
    return found


def differences(home: Path, plan: Plan, database: Path | str) -> tuple[int, int]:
    """Points that the store lacks, and errors in it: extra points, and runs that occur twice or have not ended.

    database: an SQLite file, or the address of another database.
    """
    ids = {cell.spec.run_id for cell in plan.cells}
    states = defaultdict[str, list[str]](list)
    engine = create_engine(f"sqlite:///{database}" if isinstance(database, Path) else database)
    with engine.connect() as connection:
        stored = Points(tuple(row) for row in connection.execute(text(QUERY)) if row[0] in ids)
        for name, status in connection.execute(text(RUNS)):
            states[name].append(status)
    engine.dispose()
    expected = in_journals(home, plan)
    strange = [name for name in (*ids, plan.plan_id) if states[name] != ["FINISHED"]]
    return (expected - stored).total(), (stored - expected).total() + len(strange)
