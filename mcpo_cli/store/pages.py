"""Texts for MLflow's UI: names, notes, and for each plan a saved view that compares its arms."""

import json
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from mcpo_cli.config.plan import Cell, Plan, about
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.settings import flat
from mcpo_cli.store.points import AVERAGE, MOST

LONGEST = 120
"""Most characters that the list of arms takes in a plan's name."""
SERIES = "series"
"""The tag shared by runs that differ only in the seed."""
VIEW = "mlflow.sharedViewState."
"""Prefix of the experiment tag in which MLflow's UI stores a saved view; the view's key follows."""
COLUMNS = [
    *(f"metrics.`{AVERAGE}/{name}`" for name in ("pass_at_1", f"pass_at_{MOST}", f"best_at_{MOST}")),
    *(f"tags.`{name}`" for name in ("arm", "model", "base_seed", "seed", "state")),
]
"""Columns of a saved view's table, which MLflow sorts by name."""
UI = "http://127.0.0.1:5000"
"""The address at which `mcpo ui` listens."""
OTHERS = {
    "train": "Runs started by `mcpo train`: one parent run per command.",
    "evaluate": "Evaluations of finished policies: one run per grading, named by model and protocol.",
}
"""Notes of the experiments that are not suites."""
READING = """\
- **Child runs** are the runs; they differ in the tags `arm`, `model`, `regime` and `seed`.
- **Charts** are grouped by the part of a metric's name before its last slash: `eval/...` held-out problems, `train`
  batches, `mastery` mastered and all-wrong prompts, `hinge` the prompts under MCPO's hinge, `probe/...` probe results,
  `cost` what training has spent. The view of all arms shows those of `eval/`; clear its search box for the others.
- **Artifacts**, folder `reports`: the tables, figures and the report built from these runs.
"""


def plan_name(plan: Plan) -> str:
    """For example `table1: DAPO against MCPO (toy, drift, 12 runs)`. Plans outside a suite list their arms as title."""
    title, _ = about(plan.suite)
    specs = [cell.spec for cell in plan.cells]
    arms = ", ".join(dict.fromkeys(cell.arm for cell in plan.cells))
    presets = dict.fromkeys([*(spec.scale for spec in specs), *(spec.regime for spec in specs)])
    runs = f"{len(specs)} run{'s' if len(specs) > 1 else ''}"
    return f"{plan.suite}: {title or textwrap.shorten(arms, LONGEST)} ({', '.join([*presets, runs])})"


def series(plan: Plan) -> dict[str, str]:
    """Run id -> name shared by the runs that differ only in their seeds: `MCPO toy-s`.

    The name holds arm and model, then any other setting that differs within the plan: `mcpo toy-s train.lr=0.001`.
    """
    names = {cell.spec.run_id: f"{cell.arm} {cell.spec.model.name}" for cell in plan.cells}
    settings = {cell.spec.run_id: _settings(cell.spec) for cell in plan.cells}
    for key in dict.fromkeys(key for one in settings.values() for key in one):
        values: dict[str, set[str]] = defaultdict(set)
        for run_id, name in names.items():
            values[name].add(settings[run_id].get(key, ""))
        names = {
            run_id: name if len(values[name]) == 1 else f"{name} {settings[run_id].get(key, '')}".strip()
            for run_id, name in names.items()
        }
    return names


def experiment_note(suite: str) -> str:
    """The description of a suite's experiment."""
    title, question = about(suite)
    return f"{title}. {question}" if title else OTHERS.get(suite, "")


def plan_note(plan: Plan, command: str, experiment: str, results: str = "") -> str:
    """The description of a plan's parent run: its purpose and results, how to continue it, and how to read it.

    Args:
        command: the plan's command without secrets.
        experiment: the id of its experiment.
        results: Markdown of what came out, if that is known.
    """
    _, question = about(plan.suite)
    charts, table = (fragment(experiment, plan.plan_id, charts=charts) for charts in (True, False))
    compare = (
        f"**[Compare the arms]({charts})**: the mean over seeds, with a band from the lowest to the highest. "
        f"**[Table of the runs]({table})**"
    )
    # The links come first: when the UI collapses a long note, only its first lines can be clicked.
    parts = [compare if len(plan.cells) > 1 else "", results, question]
    parts += [f"Start or continue it:\n\n```\n{command}\n```", READING]
    return "\n\n".join(part for part in parts if part)


def run_note(cell: Cell, values: Mapping[str, float], step: int, policy: str) -> str:
    """The description of a run that has ended.

    Args:
        values: the averages of its last evaluation (`points.averages`), after global step `step`; possibly none.
        policy: where the trained policy is below MCPO_HOME; empty if there is none.
    """
    spec = cell.spec
    scores = ", ".join(
        f"{name.rpartition('/')[2].replace('_at_', '@')} **{value:.3f}**" for name, value in values.items()
    )
    run = f"{cell.arm} on {spec.model.name}, {spec.seeds} (scale {spec.scale}, regime {spec.regime}, {spec.task.name})"
    parts = [
        f"{run}: {scores} after {step} global steps, mean over the held-out tiers." if scores else f"{run}.",
        f"Trained policy: `{policy}` in MCPO_HOME; to evaluate it: `mcpo evaluate {spec.run_id}`." if policy else "",
        f"Its rollouts are under Artifacts; all that were kept: `mcpo runs samples {spec.run_id}`.",
    ]
    return "\n\n".join(part for part in parts if part)


def contrasts(plan: Plan) -> dict[str, str]:
    """The settings in which the arms of a plan differ, each with its values: `DAPO: False; MCPO: True`."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    arms = dict.fromkeys(cell.arm for cell in plan.cells)
    for cell in plan.cells:
        for key, value in flat(cell.spec.identity()).items():
            values[key][cell.arm].add(str(value))
    shown = {key: {arm: ", ".join(sorted(by_arm[arm])) or "-" for arm in arms} for key, by_arm in values.items()}
    return {
        key: "; ".join(f"{arm}: {value}" for arm, value in by_arm.items())
        for key, by_arm in shown.items()
        if len(set(by_arm.values())) > 1
    }


def view(plan: Plan, parent: str, milliseconds: int) -> str:
    """The value of the tag `VIEW` + plan id: charts of the runs below `parent`, one line per series, seeds as a band.

    The charts are searched for those of the evaluations, which would stand below those of cost; clearing the search box
    shows all. The format is that of "Save as new view" in MLflow 3.17, whose state may be plain JSON.
    """
    state = {
        "searchFilter": f"tags.`mlflow.parentRunId` = '{parent}'",
        "runsHiddenMode": "SHOWALL",
        "chartsSearchFilter": "eval/",
        "selectedColumns": COLUMNS,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": SERIES}]},
    }
    times = {"createdAt": milliseconds, "updatedAt": milliseconds}
    return json.dumps({"name": plan_name(plan), **times, "state": json.dumps(state)})


def fragment(experiment: str, plan_id: str, *, charts: bool = True) -> str:
    """The address of a saved view, relative to the server's: its charts, or its table of the runs."""
    mode = "workflowType=machine_learning" + ("&compareRunsMode=CHART" if charts else "")
    return f"#/experiments/{experiment}/runs?{mode}&viewStateShareKey={plan_id}"


def _settings(spec: RunSpec) -> dict[str, str]:
    """The settings besides seeds and model: presets by name, the rest as overrides."""
    left_out = ("seed", "base_seed", "model")
    identity: dict[str, Any] = {key: value for key, value in spec.identity().items() if key not in left_out}
    presets = {key: str(identity.pop(key)) for key in ("regime", "scale")}
    return presets | {key: f"{key}={value}" for key, value in flat(identity).items()}
