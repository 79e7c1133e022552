"""What the store holds of a run besides its points: tags, parameters, data and files."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from mcpo_cli.config.plan import Cell
from mcpo_cli.config.schema import RunSpec, digest
from mcpo_cli.runs import rollouts
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.store import archive, pages, points

ROLLOUTS = "rollouts.json"
ROLLOUTS_ARE_A_TABLE = {"mlflow.loggedArtifacts": json.dumps([{"path": ROLLOUTS, "type": "table"}])}
"""The tag by which MLflow's UI shows that artifact as a table, as it does those of `mlflow.log_table`."""
MOST_GROUPS = 8
"""Prompt groups in that table: the archive of all records has the others."""


def tags(cell: Cell, attempt: Path) -> dict[str, Any]:
    """The tags to filter runs by, and those of the code of `attempt`."""
    found = {"arm": cell.arm, **cell.spec.about, "attempt": attempt.name}
    provenance = attempt / "provenance.json"
    code = read_json(provenance) if provenance.exists() else {}
    return found | {key: code[key] for key in ("commit", "dirty") if code.get(key) is not None}


def note(cell: Cell, journal: Journal) -> str:
    """The description of a run that has ended: its last scores, and where its policy and its rollouts are."""
    step, path = max(journal.files("eval").items(), default=(0, None))
    values = points.averages(journal.read(path)) if path else {}
    policy = journal.attempts()[-1] / "policy"
    where = policy.relative_to(journal.run_dir.parents[1]).as_posix() if policy.is_dir() else ""
    return pages.run_note(cell, values, step, where)


def inputs(spec: RunSpec, sources: Path) -> Iterator[DatasetInput]:
    """The run's data: the published data sets it used, or its generated task."""
    if not spec.task.published:
        task = json.dumps(spec.identity()["task"])
        yield DatasetInput(Dataset(spec.task.name, digest(spec.identity()["task"]), "generated", task))
    elif sources.exists():
        for name, data in read_json(sources).items():
            yield DatasetInput(Dataset(name, data["digest"], "data set", data["source"]))


def send_files(journal: Journal, artifacts: str, uri: str) -> dict[str, str]:
    """Send the run's files to the address `artifacts` of the store at `uri`; see `_write_files`."""
    with tempfile.TemporaryDirectory() as folder:
        tags = _write_files(Path(folder), journal)
        # MlflowClient.log_artifacts would read the whole run to learn the address.
        get_artifact_repository(artifacts, tracking_uri=uri).log_artifacts(folder)
    return tags


def _write_files(folder: Path, journal: Journal) -> dict[str, str]:
    """Write the run's artifacts into `folder`; returns the tags that MLflow's UI needs to show them.

    These are settings, provenance, evaluations, the newest rollouts if any were kept, and the archive of all records.
    """
    for path in (journal.attempts()[-1] / name for name in ("spec.json", "provenance.json")):
        if path.exists():
            (folder / path.name).write_text(archive.document(path), encoding="utf-8")
    (folder / "eval").mkdir()
    for path in journal.files("eval").values():
        shutil.copyfile(path, folder / "eval" / path.name)
    if kept := list(islice(rollouts.groups(journal), MOST_GROUPS)):
        (folder / ROLLOUTS).write_text(json.dumps(_table(kept)), encoding="utf-8")
    (folder / archive.NAME).write_bytes(archive.pack(journal.run_dir))
    return ROLLOUTS_ARE_A_TABLE if kept else {}


def _table(groups: Sequence[rollouts.Group]) -> dict[str, Any]:
    """A row a rollout, in the format of `mlflow.log_table`; the right ones of a group come first."""
    columns = ["step", "accuracy", "verdict", "response", "prompt", "gold"]
    data = [
        [group.step, group.accuracy, verdict, response, group.prompt, group.gold]
        for group in groups
        for verdict, responses in (("right", group.right), ("wrong", group.wrong))
        for response in responses
    ]
    return {"columns": columns, "data": data}
