"""Contents of a run in the store: points, tags, inputs and files, from its journal."""

import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import psutil
from mlflow.entities import Dataset, DatasetInput

from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.config.schema import RunSpec, digest
from mcpo_cli.records import SOURCES, StepRow
from mcpo_cli.runs import provenance, rollouts
from mcpo_cli.runs.bundle import document
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.runs.sanity import by_tier, evaluated
from mcpo_cli.statistics import stats

Point = tuple[str, float, int, int]
"""Name, value, time in milliseconds since the epoch, global step."""
AVERAGE = "eval/average"
"""Replaces `eval/<tier>` for means over the tiers."""
FIRST = {"train/accuracy": "accuracy/rollouts", f"{AVERAGE}/pass_at_1": "accuracy/held_out"}
"""Metrics with a second name in MLflow: it shows charts in alphabetical order, and these two belong first."""
MOST = 8
"""Largest k of pass@k and best@k, as in the paper."""
ROLLOUTS = "rollouts.json"
ROLLOUTS_ARE_A_TABLE = {"mlflow.loggedArtifacts": json.dumps([{"path": ROLLOUTS, "type": "table"}])}
"""The tag by which MLflow's UI shows that artifact as a table, as it does those of `MlflowClient.log_table`."""
MOST_GROUPS = 8
"""Prompt groups in that table: `mcpo runs samples` shows the others."""


def milliseconds(seconds: float) -> int:
    """Seconds in MLflow's unit of time."""
    return round(seconds * 1000)


def _first(values: Mapping[str, float]) -> dict[str, float]:
    return {FIRST[name]: values[name] for name in FIRST if name in values}


def step_points(row: StepRow) -> list[Point]:
    """The finite values of a step; `journal/nonfinite` counts the others."""
    finite = {key: value for key, value in row["metrics"].items() if math.isfinite(value)}
    if lost := len(row["metrics"]) - len(finite):
        finite["journal/nonfinite"] = float(lost)
    finite |= _first(finite)
    return [(key, value, milliseconds(row["time"]), row["step"]) for key, value in finite.items()]


def eval_points(step: int, seconds: float, rows: Sequence[Mapping[str, Any]]) -> list[Point]:
    """The points of one evaluation, from its `EvalRow`s."""
    values = evaluated(rows) | averages(rows)
    values |= _first(values)
    return [(name, value, milliseconds(seconds), step) for name, value in values.items()]


def averages(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the tiers of one evaluation: `eval/average/pass_at_1`, `.../pass_at_<k>` and `.../best_at_<k>`.

    k is the number of graded samples of the problem with the fewest, at most MOST.
    """
    k = min(MOST, *(row["n"] for row in rows))
    tiers = list(by_tier(rows).values())
    n, c = ([row[name] for problems in tiers for row in problems] for name in ("n", "c"))
    # All problems in one call, because calls cost more than the computation.
    values: dict[str, Any] = {
        "pass_at_1": stats.pass_at_k(n, c, 1),
        f"pass_at_{k}": stats.pass_at_k(n, c, k),
        f"best_at_{k}": stats.best_at_k(n, c, k),
    }
    ends = list(accumulate(map(len, tiers)))
    places = [slice(end - len(problems), end) for problems, end in zip(tiers, ends, strict=True)]
    means = {name: [of_all[place].mean() for place in places] for name, of_all in values.items()}
    return {f"{AVERAGE}/{name}": float(math.fsum(of_tiers)) / len(tiers) for name, of_tiers in means.items()}


def load_points() -> list[Point]:
    """The machine's load at this moment, by the names that MLflow's page of system metrics shows."""
    values = {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),
        "system/system_memory_usage_percentage": psutil.virtual_memory().percent,
    }
    now = time.time()
    return [(name, value, milliseconds(now), int(now)) for name, value in values.items()]


def tags(cell: PlannedRun, attempt: Path) -> dict[str, Any]:
    """The tags to filter runs by, and those of the code of `attempt`."""
    found = {"arm": cell.arm, **cell.spec.about, "attempt": attempt.name}
    code = provenance.read(attempt)
    found |= {key: code[key] for key in ("commit", "dirty") if key in code}
    return found | ({"mlflow.source.git.commit": found["commit"]} if "commit" in found else {})


def inputs(spec: RunSpec, run_dir: Path) -> list[DatasetInput]:
    """The run's data: the published data sets it used, or its generated task."""
    if not spec.task.published:
        task = spec.identity()["task"]
        return [DatasetInput(Dataset(spec.task.name, digest(task), "generated", json.dumps(task)))]
    sources = read_json(run_dir / SOURCES) if (run_dir / SOURCES).exists() else {}
    return datasets(sources)


def datasets(sources: Mapping[str, Mapping[str, Any]]) -> list[DatasetInput]:
    """Published data sets by name, each with its digest and source."""
    return [
        DatasetInput(Dataset(name, found["digest"], "data set", found["source"])) for name, found in sources.items()
    ]


def write_files(folder: Path, journal: Journal) -> dict[str, str]:
    """Write the run's artifacts into `folder`; returns the tags that MLflow's UI needs to show them.

    These are settings, provenance, evaluations, and the newest rollouts if any were kept.
    """
    for path in (journal.attempts()[-1] / name for name in ("spec.json", "provenance.json")):
        if path.exists():
            (folder / path.name).write_text(document(path), encoding="utf-8")
    (folder / "eval").mkdir()
    for path in journal.files("eval").values():
        shutil.copyfile(path, folder / "eval" / path.name)
    kept = list(islice(rollouts.groups(journal), MOST_GROUPS))
    if not kept:
        return {}
    (folder / ROLLOUTS).write_text(json.dumps({"columns": list(COLUMNS), "data": list(_rows(kept))}), encoding="utf-8")
    return ROLLOUTS_ARE_A_TABLE


COLUMNS = ("step", "accuracy", "verdict", "response", "prompt", "gold")


def _rows(groups: Sequence[rollouts.Group]) -> Iterator[list[Any]]:
    """One row per rollout, with the columns COLUMNS; the correct ones of a group come first."""
    for group in groups:
        for verdict, responses in (("right", group.right), ("wrong", group.wrong)):
            for response in responses:
                yield [group.step, group.accuracy, verdict, response, group.prompt, group.gold]
