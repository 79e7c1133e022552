"""Contents of a run in MLflow: tags, inputs and files, from its folder."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput

from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.config.schema import RunSpec, digest
from mcpo_cli.records import SOURCES
from mcpo_cli.runs import provenance, rollouts
from mcpo_cli.runs.journal import Journal, document, read_json

ROLLOUTS = "rollouts.json"
ROLLOUTS_ARE_A_TABLE = {"mlflow.loggedArtifacts": json.dumps([{"path": ROLLOUTS, "type": "table"}])}
"""The tag by which MLflow's UI shows that artifact as a table, as it does those of `MlflowClient.log_table`."""
MOST_GROUPS = 8
"""Prompt groups in that table: `mcpo runs samples` shows the others."""


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
