"""Copies artifacts, evaluations and probe results to the MLflow store.

A failing store only causes a warning, because the disk has all files and records.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpo_cli.commands import console
from mcpo_cli.errors import McpoError
from mcpo_cli.home import home
from mcpo_cli.trackers import resolve

if TYPE_CHECKING:
    from mcpo_cli.compare.comparison import Comparison
    from mcpo_cli.compare.subjects import Answer
    from mcpo_cli.config.plan import Plan
    from mcpo_cli.measures.base import Measure
    from mcpo_cli.measures.summary import Measured
    from mcpo_cli.report.artifacts import BuiltArtifact
    from mcpo_cli.trackers.mlflow import Store


def publish_artifacts(built: "Sequence[tuple[Plan, Sequence[BuiltArtifact]]]", report: Sequence[Path] = ()) -> None:
    """Log the artifacts of each plan, with the report, to its parent run in the store that the first plan names.

    The headline differences of comparisons become metrics of that run.
    """
    uri = resolve(next((plan.cells[0].spec.compute.tracking_uri for plan, _ in built), ""))
    if uri is None or not built:
        return
    try:
        store = _connected(uri)
        from mcpo_cli.config import presets
        from mcpo_cli.trackers.results import log_artifacts

        for plan, here in built:
            files = [path for one in here for path in (*one.paths, one.folder / f"{one.name}.json")]
            headlines = {name: value for one in here for name, value in _headlines(one).items()}
            table = next((one for one in here if one.name == presets.stem(plan.suite) and one.grids), None)
            log_artifacts(store, plan, [*report, *files], headlines, _results(table) if table else "")
    except McpoError as error:
        console.talk(f"warning: {error}")


def publish_comparison(answer: "Answer", key: str, files: Sequence[Path]) -> None:
    """Log a comparison: its differences as metrics, its files as artifacts.

    Those of a suite go to the parent run of the suite, all others to a run of their own.
    key: equal for equal questions, which share one run.
    """
    from mcpo_cli.analysis import render
    from mcpo_cli.compare import page

    found, of_suite = answer.found, answer.plan if answer.suite else None
    uri = resolve(of_suite.cells[0].spec.compute.tracking_uri if of_suite else "")
    if uri is None:
        if not of_suite:
            console.talk("warning: not logged to MLflow: MLFLOW_TRACKING_URI=offline")
        return
    sentence = " ".join(page.sentences(found))
    try:
        store = _connected(uri)
        from mcpo_cli.trackers.results import log_artifacts, log_comparison

        if of_suite:
            note = f"{render.escaped(sentence)}\n\n{render.pipes(page.main_grid(found))}"
            log_artifacts(store, of_suite, files, _of_suite(found), note)
        else:
            log_comparison(store, answer.title, key, files, _of_logs(found), sentence)
    except McpoError as error:
        console.talk(f"warning: {error}")


def _of_suite(found: "Comparison") -> dict[str, float]:
    """The headline differences, as `difference/<metric>/<equal>/<model>/<arm>`."""
    from mcpo_cli.trackers.descriptions import metric_part

    return {
        "/".join(["difference", *(metric_part(row[name]) for name in ("metric", "at", "model", "arm"))]): row[
            "difference"
        ]
        for row in found.headline.to_dict("records")
    }


def _of_logs(found: "Comparison") -> dict[str, float]:
    """All known differences with their intervals and p-values."""
    from mcpo_cli.trackers.descriptions import metric_part

    values: dict[str, float] = {}
    for row in found.differences.to_dict("records"):
        name = "/".join(metric_part(row[part]) for part in ("metric", "benchmark", "arm"))
        values |= {f"difference/{name}": row["difference"], f"p_adjusted/{name}": row["p_adjusted"]}
        values |= {f"difference/{name}/{end}": row[end] for end in ("low", "high")}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def publish_probe(probe: "Measure", measured: "Sequence[Measured]", document: dict[str, Any]) -> None:
    """Log a probe's values to the runs in the store, and its document to their parents."""
    uri = resolve(measured[0].cell.spec.compute.tracking_uri)
    if uri is None:
        return
    try:
        store = _connected(uri)
        from mcpo_cli.trackers.results import log_probe

        findings = {one.cell.spec.run_id: one.finding.values for one in measured}
        if unknown := log_probe(store, probe.name, findings, document):
            console.talk(f"not in the MLflow store: {', '.join(unknown)}; to copy runs there: mcpo runs sync")
    except McpoError as error:
        console.talk(f"warning: {error}")


def evaluation_publisher(setting: str, note: Callable[[str], None]) -> Callable[[Path], None]:
    """A function that copies the evaluation in a folder to the store that `compute.tracking_uri` names.

    Later errors of the store are passed to `note` and never raised.

    Raises:
        ConfigError: the store cannot be used now.
    """
    uri = resolve(setting)
    if uri is None:
        return lambda _: None
    store = _connected(uri)
    from mcpo_cli.evaluation.gradings import all_of
    from mcpo_cli.trackers.results import log_gradings

    def publish(folder: Path) -> None:
        try:
            log_gradings(store, folder, all_of(folder))
        except McpoError as error:
            note(f"warning: {error}; the results are in {folder}")

    return publish


def sync_evaluations(store: "Store") -> dict[str, int]:
    """Copy every evaluation in MCPO_HOME to the store; returns points sent by evaluation id.

    Raises:
        StoreError: the store failed. McpoError: a grading record is damaged.
    """
    folders = sorted(path.parent for path in (home() / "evals").glob("*/gradings"))
    if not folders:
        return {}
    from mcpo_cli.evaluation.gradings import all_of
    from mcpo_cli.trackers.results import log_gradings

    return {folder.name: log_gradings(store, folder, all_of(folder)) for folder in folders}


def _connected(uri: str) -> "Store":
    # Imported here because importing mlflow takes seconds. Not under `freeze_gc`, which would keep the objects of an
    # engine in the same process from being freed at its end.
    from mcpo_cli.trackers.mlflow import Store

    store = Store(uri)
    store.check()
    return store


def _headlines(built: "BuiltArtifact") -> dict[str, float]:
    """A comparison's known headline differences, as `difference/<metric>/<equal>/<model>/<arm>`.

    MLflow makes a chart of one bar of each metric, so all other numbers are only in the tables.
    """
    from mcpo_cli.trackers.descriptions import metric_part

    return {
        "/".join(["difference", *(metric_part(row[name]) for name in ("metric", "at", "model", "arm"))]): row["mean"]
        for row in built.to_json()["rows"]
        if row.get("family") == "headline" and row["mean"] is not None
    }


def _results(table: "BuiltArtifact") -> str:
    """A comparison's sentence and first table as Markdown."""
    from mcpo_cli.analysis import render

    return f"{render.escaped(table.page.sentence)}\n\n{render.pipes(table.grids[0])}"
