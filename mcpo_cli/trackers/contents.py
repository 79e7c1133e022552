"""Contents of a run in MLflow: tags, inputs and files, from its folder."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput

from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.config.schema import Model, RunSpec, digest
from mcpo_cli.records import SOURCES
from mcpo_cli.runs import provenance
from mcpo_cli.runs.journal import Journal, document, read_json
from mcpo_cli.trackers.rows import AVERAGE, averages

COMPARED = ("method.", "sampler.", "train.", "model.name", "task.name", "backend")
"""The settings that are always parameters of a run in MLflow, or the beginnings of their names."""


def tags(run: PlannedRun, attempt: Path) -> dict[str, Any]:
    """The tags to filter runs by, and the tags of the code of `attempt`."""
    values = {"arm": run.arm, **run.spec.about, "attempt": attempt.name}
    code = provenance.read(attempt)
    values |= {key: code[key] for key in ("commit", "dirty") if key in code}
    return values | ({"mlflow.source.git.commit": values["commit"]} if "commit" in values else {})


def params(spec: RunSpec) -> dict[str, Any]:
    """The settings that runs are compared by; other settings are in `spec.json` among its files, or tags.

    Each is a column of MLflow's table of runs, which fails with hundreds of columns (its issue 11927): for evaluations,
    probes, warm-up, tasks and models, the table only has settings that are not at their defaults.
    """
    settings = spec.flat_identity()
    usual = RunSpec(
        method=spec.method, task=spec.task, model=spec.model if spec.model.path else Model()
    ).flat_identity()
    return {
        key: value
        for key, value in settings.items()
        if value != "" and key not in spec.about and (key.startswith(COMPARED) or value != usual.get(key))
    }


def outcome(journal: Journal) -> dict[str, str]:
    """Tags with the held-out accuracy of a run's first and last evaluation, and their difference."""
    files = list(journal.files("eval").values())
    if not files:
        return {}
    before, after = (averages(journal.read(path))[f"{AVERAGE}/pass_at_1"] for path in (files[0], files[-1]))
    return {"before": f"{before:.3f}", "after": f"{after:.3f}", "change": f"{after - before:+.3f}"}


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
        DatasetInput(Dataset(name, facts["digest"], "data set", facts["source"])) for name, facts in sources.items()
    ]


def write_files(folder: Path, journal: Journal) -> None:
    """Write the run's artifacts into `folder`: settings, provenance and evaluations."""
    for path in (journal.attempts()[-1] / name for name in ("spec.json", "provenance.json")):
        if path.exists():
            (folder / path.name).write_text(document(path), encoding="utf-8")
    (folder / "eval").mkdir()
    for path in journal.files("eval").values():
        shutil.copyfile(path, folder / "eval" / path.name)
