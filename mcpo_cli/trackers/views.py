"""The views of an experiment in MLflow's UI: its table of runs, and the charts of one plan.

MLflow reads a view from a tag of the experiment, `mlflow.sharedViewState.<key>`, if the address names its key. A view
has the columns and their order, the filter, the groups, and which runs are shown; the state of unfolded rows and of the
charts on a run's own page cannot be set. Fields have the names of MLflow 3.17 and 3.18.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

KIND, VIEW = "mlflow.experimentKind", "mlflow.sharedViewState."
"""Tags of an experiment: its kind, and a prefix of the tags of its views."""
TABLE = "mcpo"
"""The key of the table of runs."""
FIRST = {
    "eval/average/pass_at_1": "a first look/1 held-out accuracy",
    "train/accuracy": "a first look/2 rollout accuracy",
    "mastery/mastered": "a first look/3 mastered share",
    "train/entropy": "a first look/4 entropy",
    "train/response_length": "a first look/5 response length",
}
"""Metrics with a second name in MLflow, which shows charts in alphabetical order: these belong first."""
DETAILS = (
    *("perf/seconds_probe", "perf/seconds_record", "gradient/share_", "weight/p_"),
    *("sanity/duplicates_", "sampling/rounds", "sampling/prompts", "probe/rollouts"),
)
"""Beginnings of the names of metrics that MLflow does not get, because they say how a run went, not how well.

Each metric is a column of the table of runs; `mcpo runs show` and `mcpo probe` have these.
"""
NAME = "attributes.`Run Name`"
COLUMNS = {
    "tags.`arm`": 95,
    "tags.`model`": 80,
    "tags.`seed`": 56,
    "tags.`before`": 66,
    "tags.`after`": 60,
    "tags.`change`": 76,
    "tags.`verdict`": 140,
}
"""Columns of the table beside the name, with their widths in pixels: all fit into a window of 1 400."""
NAME_WIDTH = 362
"""The width of the names."""


def tags() -> dict[str, str]:
    """The tags that let an experiment open in MLflow's view for training, with a table of what is compared."""
    state = {**_state("", "attributes.start_time", ascending=False), "columnWidths": {NAME: NAME_WIDTH, **COLUMNS}}
    view = {"name": "runs and verdicts", "createdAt": 0, "state": json.dumps(state)}
    return {KIND: "custom_model_development", f"{VIEW}{TABLE}": json.dumps(view)}


def charts(parent: str, series: Sequence[str]) -> Mapping[str, str]:
    """The tag with the charts of the runs below `parent`: all of them, in groups if runs share a series."""
    state = _state(f"tags.`mlflow.parentRunId` = '{parent}'", "tags.`mlflow.runName`", ascending=True)
    if len({*series}) < len(series):
        groups = [{"mode": "tag", "groupByData": "series"}]
        state["groupBy"] = {"aggregateFunction": "average", "groupByKeys": groups}
    return {f"{VIEW}{parent}": json.dumps(state)}


def _state(query: str, order: str, *, ascending: bool) -> dict[str, Any]:
    """If runs are not ordered by date, children are not folded below their parent."""
    return {
        "searchFilter": query,
        "orderByKey": order,
        "orderByAsc": ascending,
        "selectedColumns": list(COLUMNS),
        "columnOrder": [NAME, *COLUMNS],
        "runsHiddenMode": "SHOW_ALL",
    }


def address(experiment: str, parent: str = "") -> str:
    """The address of the charts of the runs below `parent`, or of the table of runs, relative to the UI's."""
    mode = "&compareRunsMode=CHART" if parent else ""
    return f"#/experiments/{experiment}/runs?viewStateShareKey={parent or TABLE}{mode}"
