"""Points written straight into the tables stand there as MLflow's own call writes them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlflow.entities import Metric, RunTag

from mcpo_cli.store import rows
from mcpo_cli.store.connection import MlflowClient
from mcpo_cli.store.mlflow import Store
from mcpo_cli.store.points import Point

values = st.floats() | st.sampled_from([0.0, 1.0, float("nan"), float("inf"), -float("inf")])
points = st.lists(st.tuples(st.sampled_from("abc"), values, st.integers(0, 3), st.integers(0, 3)), max_size=12)
batches = st.lists(st.tuples(points, st.dictionaries(st.sampled_from("xy"), st.text("01", min_size=1))), max_size=3)


def stored(database: Path, run_id: str) -> dict[str, list[Any]]:
    columns = "key, value, timestamp, step, is_nan"
    with closing(sqlite3.connect(database)) as connection:
        return {
            "metrics": sorted(connection.execute(f"select {columns} from metrics where run_uuid = ?", [run_id])),
            "latest": sorted(connection.execute(f"select {columns} from latest_metrics where run_uuid = ?", [run_id])),
            "tags": sorted(
                connection.execute(
                    "select key, value from tags where run_uuid = ? and key not like 'mlflow.%'", [run_id]
                )
            ),
        }


def test_rows_equal_those_of_log_batch(store: Store, home: Path) -> None:
    client, experiment = store._client(), store._experiment("train")
    assert store._engine is not None
    engine = store._engine

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(batches)
    def compare(given_batches: list[tuple[list[Point], dict[str, str]]]) -> None:
        ours, theirs = (client.create_run(experiment).info.run_id for _ in range(2))
        for batch, tags in given_batches:
            rows.insert(engine, ours, batch, tags)
            theirs_now(client, theirs, batch, tags)
        assert stored(home / "mlflow.db", ours) == stored(home / "mlflow.db", theirs)

    compare()


def theirs_now(client: MlflowClient, run_id: str, batch: list[Point], tags: dict[str, str]) -> None:
    metrics = [Metric(*point) for point in batch]
    client.log_batch(run_id, metrics=metrics, tags=[RunTag(key, value) for key, value in tags.items()])
