"""What people read in MLflow's UI: names, notes, and for each plan a saved view that compares its arms."""

import json
import textwrap
from collections import defaultdict
from typing import Any

from mcpo_cli.config.plan import Plan, about
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.store.points import flat

LONGEST = 120
"""Characters of the arms in a plan's name."""
SERIES = "series"
"""The tag that runs share which differ in the seed alone."""
VIEW = "mlflow.sharedViewState."
"""Where MLflow's UI keeps a saved view: a tag of the experiment, its key ends in the view's."""
UI = "http://127.0.0.1:5000"
"""Where `mcpo ui` listens."""
OTHERS = {
    "train": "Runs that `mcpo train` started: one parent run a command.",
    "evaluate": "Evaluations of finished policies: one run a grading, named by model and protocol.",
}
READING = """\
- **Child runs** are the runs; they differ in the tags `arm`, `model`, `regime` and `seed`.
- **Charts** group by what stands before the last slash of a metric's name: `eval/...` held-out problems, `train` the
  batches, `mastery` mastered and all-wrong prompts, `hinge` what MCPO's hinge feels, `probe/...` what probes found.
- **Artifacts**, folder `reports`: the tables, figures and the report that were built from these runs.
"""


def plan_name(plan: Plan) -> str:
    """`table1: DAPO against MCPO (toy, drift, 12 runs)`; a plan that is no suite has its arms for a title."""
    title, _ = about(plan.suite)
    specs = [cell.spec for cell in plan.cells]
    arms = ", ".join(dict.fromkeys(cell.arm for cell in plan.cells))
    presets = dict.fromkeys([*(spec.scale for spec in specs), *(spec.regime for spec in specs)])
    runs = f"{len(specs)} run{'s' if len(specs) > 1 else ''}"
    return f"{plan.suite}: {title or textwrap.shorten(arms, LONGEST)} ({', '.join([*presets, runs])})"


def series(plan: Plan) -> dict[str, str]:
    """What the runs that differ in the seed alone are called, by run id: `MCPO toy-s`.

    Arm and model, then whatever else tells runs of this plan apart: `MCPO toy-s drift`, `mcpo toy-s train.lr=0.001`.
    """
    names = {cell.spec.run_id: f"{cell.arm} {cell.spec.model.name}" for cell in plan.cells}
    settings = {cell.spec.run_id: _settings(cell.spec) for cell in plan.cells}
    for key in dict.fromkeys(key for one in settings.values() for key in one):
        found: dict[str, set[str]] = defaultdict(set)
        for run_id, name in names.items():
            found[name].add(settings[run_id].get(key, ""))
        names = {
            run_id: name if len(found[name]) == 1 else f"{name} {settings[run_id].get(key, '')}".strip()
            for run_id, name in names.items()
        }
    return names


def experiment_note(suite: str) -> str:
    """What the experiment of a suite is for."""
    title, question = about(suite)
    return f"{title}. {question}" if title else OTHERS.get(suite, "")


def plan_note(plan: Plan, command: str, view: str) -> str:
    """What the parent run of a plan is for, how to continue it, and how to read it.

    Args:
        command: without secrets.
        view: see `fragment`; empty for a single run.
    """
    _, question = about(plan.suite)
    compare = f"**[Compare the arms]({view})**: the mean over seeds, with a band from the lowest to the highest."
    # The link first: where the UI folds a long note, nothing but its first lines can be clicked.
    parts = [compare if view else "", question, f"Start or continue it:\n\n```\n{command}\n```", READING]
    return "\n\n".join(part for part in parts if part)


def view(plan: Plan, parent: str, milliseconds: int) -> str:
    """The value of the tag `VIEW` + plan id: charts of the runs below `parent`, a line a series, its seeds a band.

    Format: what the UI of MLflow 3.17 writes for "Save as new view"; its state may be plain JSON.
    """
    state = {
        "searchFilter": f"tags.`mlflow.parentRunId` = '{parent}'",
        "runsHiddenMode": "SHOWALL",
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": SERIES}]},
    }
    times = {"createdAt": milliseconds, "updatedAt": milliseconds}
    return json.dumps({"name": plan_name(plan), **times, "state": json.dumps(state)})


def fragment(experiment: str, plan_id: str) -> str:
    """The address of a saved view, after that of the server."""
    mode = "workflowType=machine_learning&compareRunsMode=CHART"
    return f"#/experiments/{experiment}/runs?{mode}&viewStateShareKey={plan_id}"


def _settings(spec: RunSpec) -> dict[str, str]:
    """What tells runs apart that have an arm and a model in common: presets by name, the rest as overrides."""
    identity: dict[str, Any] = {key: value for key, value in spec.identity().items() if key not in ("seed", "model")}
    presets = {key: str(identity.pop(key)) for key in ("regime", "scale")}
    return presets | {key: f"{key}={value}" for key, value in flat(identity).items()}
