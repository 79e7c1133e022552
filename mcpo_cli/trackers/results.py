"""Uploads results of runs: evaluations, probe results, comparisons, and the files of artifacts and reports.

Every function raises StoreError if the store failed; the next call sends the rest.
"""

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpo_cli.config.plan import Plan
from mcpo_cli.records import Results
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.settings import flat
from mcpo_cli.trackers import contents, descriptions, views
from mcpo_cli.trackers.connection import STATUS
from mcpo_cli.trackers.mlflow import PARENT, RUN_ID, Store

EVALUATIONS, COMPARISONS = "evaluate", "compare"
"""The experiments of all evaluations, and of comparisons of logs."""
FOLDER = "reports"
"""The folder of tables, figures and reports among the artifacts of a parent run."""


def log_gradings(store: Store, folder: Path, gradings: Iterable[Results]) -> int:
    """Upload the missing `gradings` of the evaluation in `folder`, one run each; returns the number of points sent."""
    with store.answering(), store.turn:
        return sum(_log_grading(store, folder, results) for results in gradings)


def log_probe(store: Store, probe: str, findings: Mapping[str, Mapping[str, float]], document: Any) -> list[str]:
    """Log values to their runs as `probe/<probe>/<value>`, and `document` to their parents as `probes/<probe>.json`.

    Each point has the end time of its run, so that MLflow drops repeated equal points. A run that several suites use
    exists once for each of them.

    Args:
        findings: run id -> value name -> value.

    Returns:
        The ids of the runs that the store does not hold.
    """
    parents, unknown_ids = set[str](), []
    with store.answering():
        for run_id, values in findings.items():
            attempt = Journal(store.home / "runs" / run_id).attempts()[-1]
            end = read_json(attempt / "status.json")["updated"]
            runs = list(store.search(f"tags.`{RUN_ID}` = '{run_id}'"))
            for run in runs:
                store.log(run.info.run_id, [(f"probe/{probe}/{name}", value, end, 0) for name, value in values.items()])
            parents |= {run.data.tags[PARENT] for run in runs if PARENT in run.data.tags}
            unknown_ids += [] if runs else [run_id]
        for parent in sorted(parents):
            store.client().log_dict(parent, document, f"probes/{probe}.json")
    return unknown_ids


def log_artifacts(
    store: Store, plan: Plan, files: Sequence[Path], values: Mapping[str, float], verdict: str = "", results: str = ""
) -> None:
    """Upload files to the plan's parent run, and the missing content of the plan's runs.

    Args:
        values: metrics to log to the parent run.
        verdict: the sentence for the column of verdicts in the table of runs.
        results: Markdown for the description of the parent run.
    """
    store.ingest(plan)
    with store.answering():
        parent = store.parent(plan)
        _log_files(store, parent, files, values)
        if results:
            charts = views.address(store.experiment(plan.suite), parent)
            store.describe(parent, descriptions.plan_note(plan, charts, results))
            store.log(parent, tags={"verdict": descriptions.short(verdict)})


def log_comparison(
    store: Store, title: str, key: str, files: Sequence[Path], values: Mapping[str, float], note: str
) -> None:
    """Log a comparison of logs to the run of its `key`: `values` as metrics, `files` as artifacts, a note on top."""
    with store.answering(), store.turn:
        now, experiment, tag = time.time(), store.experiment(COMPARISONS), ("mcpo.comparison", key)
        run = store.find(experiment, *tag) or store.create(experiment, title, tag, now, {})
        _log_files(store, run.info.run_id, files, values)
        store.log(run.info.run_id, tags={"verdict": descriptions.short(note)})
        store.describe(run.info.run_id, f"{note}\n\n{descriptions.OURS}")
        store.set_status(run.info.run_id, STATUS["done"], now)


def _log_files(store: Store, mlflow_id: str, files: Sequence[Path], values: Mapping[str, float]) -> None:
    for path in files:
        store.client().log_artifact(mlflow_id, str(path), FOLDER)
    store.log(mlflow_id, [(name, value, time.time(), 0) for name, value in values.items()])


def _log_grading(store: Store, folder: Path, results: Results) -> int:
    name, end = f"{results['eval_id']} grading {results['grading']}", results["time"]
    experiment, key = store.experiment(EVALUATIONS), ("mcpo.evaluation", name)
    run = store.find(experiment, *key) or store.create(experiment, name, key, end, {})
    if run.info.status == STATUS["done"]:
        return 0
    points = [
        (f"eval/{benchmark}/{metric}", value, end, 0)
        for benchmark, result in results["benchmarks"].items()
        for metric, value in result["metrics"].items()
        if math.isfinite(value)
    ]
    mlflow_id = run.info.run_id
    tags = {
        **{f"mcpo.{name}": results[name] for name in ("eval_id", "grading", "label")},
        "mcpo.deviations": json.dumps([*results["deviations"], *results["shortfalls"]]),
        "mcpo.graders": ", ".join(sorted({result["grader"] for result in results["benchmarks"].values()})),
        "mcpo.engines": ", ".join(results["engines"]),
        "model": results["protocol"]["model_name"],
        "seed": results["protocol"]["seed"],
        "commit": results["commit"],
        "dirty": results["dirty"],
    }
    store.log(mlflow_id, points, tags, flat(results["protocol"]))
    store.client().log_inputs(mlflow_id, contents.datasets(results["benchmarks"]))
    store.client().log_artifacts(mlflow_id, str(folder / "gradings" / str(results["grading"])))
    # Set last: a run with this status is complete.
    store.set_status(mlflow_id, STATUS["done"], end)
    return len(points)
