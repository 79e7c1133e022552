"""Writes points and tags straight into the tables of a database store.

`MlflowClient.log_batch` makes an object for each point, which is most of the time that it takes to bring a run to the
store: 0.12 ms a point, against 0.01 ms here. What is stored is the same (tests/unit/test_store_rows.py compares them).
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlTag
from sqlalchemy import Engine, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from mcpo_cli.store.points import Point

INSERT: dict[str, Callable[[Any], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
"""Dialects whose insert can skip or replace rows that are there already."""


def insert(engine: Engine, run_uuid: str, points: Sequence[Point], tags: Mapping[str, str]) -> None:
    """Write the points and tags of one run in one transaction; a point that is there already stays as it is."""
    into = INSERT[engine.dialect.name]
    latest = into(SqlLatestMetric.__table__)
    place = ("step", "timestamp", "value")
    newer = tuple_(*(latest.excluded[name] for name in place)) > tuple_(
        *(SqlLatestMetric.__table__.c[name] for name in place)
    )
    latest = latest.on_conflict_do_update(
        index_elements=["key", "run_uuid"],
        set_={name: latest.excluded[name] for name in (*place, "is_nan")},
        where=newer,
    )
    tag = into(SqlTag.__table__)
    tag = tag.on_conflict_do_update(index_elements=["key", "run_uuid"], set_={"value": tag.excluded.value})
    rows = [_row(run_uuid, point) for point in points]
    last: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["key"] not in last or _place(row) > _place(last[row["key"]]):
            last[row["key"]] = row
    with engine.begin() as connection:
        if rows:
            connection.execute(into(SqlMetric.__table__).on_conflict_do_nothing(), rows)
            connection.execute(latest, sorted(last.values(), key=lambda row: row["key"]))
        if tags:
            connection.execute(tag, [{"run_uuid": run_uuid, "key": key, "value": tags[key]} for key in sorted(tags)])


def _place(row: Mapping[str, Any]) -> tuple[int, int, float]:
    """What makes one point of a metric later than another."""
    return row["step"], row["timestamp"], row["value"]


def _row(run_uuid: str, point: Point) -> dict[str, Any]:
    """The columns of a point; MLflow stores a NaN as 0 with a mark, and an infinity as the largest number."""
    key, value, timestamp, step = point
    is_nan = math.isnan(value)
    stored = 0.0 if is_nan else min(max(value, -sys.float_info.max), sys.float_info.max)
    return {
        "run_uuid": run_uuid,
        "key": key,
        "value": stored,
        "timestamp": timestamp,
        "step": step,
        "is_nan": is_nan,
    }
