"""Uploads evaluations to MLflow: one run per grading in the experiment `evaluate`; earlier gradings keep theirs."""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, Param

from mcpo_cli.records import Results
from mcpo_cli.settings import flat
from mcpo_cli.store.connection import STATUS, Connection, run_tags
from mcpo_cli.store.points import Point, milliseconds

EXPERIMENT = "evaluate"


class Evaluations(Connection):
    """An MLflow store, for evaluations."""

    def ingest(self, folder: Path, gradings: Iterable[Results]) -> int:
        """Upload the missing `gradings` of the evaluation in `folder`; returns the number of points sent.

        Raises:
            StoreError: the store failed; the next call sends what is missing.
        """
        with self._writing():
            return sum(self._log_grading(folder, results) for results in gradings)

    def _log_grading(self, folder: Path, results: Results) -> int:
        name = f"{results['eval_id']} grading {results['grading']}"
        experiment, client = self._experiment(EXPERIMENT), self._client()
        run = self._find(experiment, "mcpo.evaluation", name)
        if run is None:
            run = self._create(experiment, name, results["time"], {"mcpo.evaluation": name})
        if run.info.status == STATUS["done"]:
            return 0
        mlflow_id = run.info.run_id
        params = [Param(key, str(value)) for key, value in flat(results["protocol"]).items()]
        client.log_batch(mlflow_id, params=params, tags=run_tags(_tags(results)))
        sets = [
            DatasetInput(Dataset(name=name, digest=one["digest"], source_type="data set", source=one["source"]))
            for name, one in results["benchmarks"].items()
        ]
        client.log_inputs(mlflow_id, sets)
        points = list(_points(results))
        self._log(mlflow_id, points, {})
        for path in sorted((folder / "gradings" / str(results["grading"])).iterdir()):
            client.log_artifact(mlflow_id, str(path))
        # Set last: a run with this status is complete.
        self._set_status(mlflow_id, STATUS["done"], results["time"])
        return len(points)


def _points(results: Results) -> Iterator[Point]:
    for name, one in results["benchmarks"].items():
        for key, value in one["metrics"].items():
            if math.isfinite(value):
                yield f"eval/{name}/{key}", value, milliseconds(results["time"]), 0


def _tags(results: Results) -> dict[str, Any]:
    return {
        "mcpo.eval_id": results["eval_id"],
        "mcpo.grading": results["grading"],
        "mcpo.label": results["label"],
        "mcpo.deviations": json.dumps(results["deviations"]),
        "mcpo.graders": ", ".join(sorted({one["grader"] for one in results["benchmarks"].values()})),
        "mcpo.engines": ", ".join(results["engines"]),
        "model": results["protocol"]["model_name"],
        "seed": results["protocol"]["seed"],
        "commit": results["commit"],
        "dirty": results["dirty"],
    }
