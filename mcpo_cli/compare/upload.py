"""Logs a comparison to the MLflow store: its differences as metrics, its files as artifacts."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcpo_cli.compare import page
from mcpo_cli.compare.comparison import Comparison, records
from mcpo_cli.compare.subjects import Answer
from mcpo_cli.render import markup
from mcpo_cli.scheduling.display import talk
from mcpo_cli.trackers import resolve, upload
from mcpo_cli.trackers.descriptions import headline_name, metric_part

if TYPE_CHECKING:
    from mcpo_cli.trackers.mlflow import Store


def upload_comparison(answer: Answer, key: str, files: Sequence[Path]) -> None:
    """Log a suite's comparison to the suite's parent run, any other comparison to a run of its own.

    key: equal for equal questions, which share one run.
    """
    plan = answer.plan if answer.suite else None
    setting = plan.runs[0].spec.compute.tracking_uri if plan else ""
    if plan is None and resolve(setting) is None:
        talk("warning: not logged to MLflow: MLFLOW_TRACKING_URI=offline")

    def send(store: "Store") -> None:
        from mcpo_cli.trackers.results import log_artifacts, log_comparison

        sentence = " ".join(page.sentences(answer.comparison))
        if plan:
            note = f"{markup.escaped(sentence)}\n\n{markup.pipes(page.main_grid(answer.comparison))}"
            values = {headline_name(row): row["difference"] for row in records(answer.comparison.headline)}
            log_artifacts(store, plan, files, values, sentence, note)
        else:
            log_comparison(store, answer.title, key, files, _differences(answer.comparison), sentence)

    upload.upload(setting, send, talk)


def _differences(comparison: Comparison) -> dict[str, float]:
    """All known differences with their intervals and p-values."""
    values: dict[str, float] = {}
    for row in records(comparison.differences):
        name = "/".join(metric_part(row[key]) for key in ("metric", "benchmark", "arm"))
        values |= {f"difference/{name}": row["difference"], f"p_adjusted/{name}": row["p_adjusted"]}
        values |= {f"difference/{name}/{end}": row[end] for end in ("low", "high")}
    return {name: value for name, value in values.items() if math.isfinite(value)}
