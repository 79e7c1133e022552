"""One reader of scalars for four trackers, whose files are written by the trackers themselves or by their formats."""

import json
import sqlite3
from pathlib import Path

import pytest

from mcpo_cli.compare.comparison import Question, records
from mcpo_cli.compare.log import Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.readers import Options, read
from tests.errors import refused

VALUES = {"r0": [3.0, 2.5, 2.0], "r1": [3.1, 2.4, 2.2], "r2": [2.9, 2.6, 2.1]}
"""By run: the loss at each step."""


def wandb(folder: Path) -> Path:
    """The summary that W&B keeps of each run."""
    for run, losses in VALUES.items():
        files = folder / f"run-{run}" / "files"
        files.mkdir(parents=True)
        (files / "wandb-summary.json").write_text(json.dumps({"loss": losses[-1], "_step": 2, "note": "x"}))
    return folder


def trackio(folder: Path) -> Path:
    """The database of a project, in the columns of trackio's table of metrics."""
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "project.db") as database:
        database.execute("CREATE TABLE metrics (id INTEGER, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)")
        for run, losses in VALUES.items():
            for step, loss in enumerate(losses):
                row = (0, "", run, step, json.dumps({"loss": loss, "table": {"_type": "x"}}))
                database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", row)
    return folder


def tensorboard(folder: Path) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    for run, losses in VALUES.items():
        with SummaryWriter(str(folder / run)) as writer:
            for step, loss in enumerate(losses):
                writer.add_scalar("loss", loss, step)
    return folder


def mlflow_files(folder: Path) -> Path:
    """A file store: a folder for each run of an experiment, a file for each metric."""
    for run, losses in VALUES.items():
        metrics = folder / "0" / run / "metrics"
        metrics.mkdir(parents=True)
        (metrics.parent / "meta.yaml").write_text("run_id: x\n")
        (metrics / "loss").write_text("".join(f"170000000 {loss} {step}\n" for step, loss in enumerate(losses)))
    return folder


@pytest.mark.parametrize("write", [wandb, trackio, tensorboard, mlflow_files])
def test_the_last_value_of_each_run(tmp_path: Path, write: object) -> None:
    assert callable(write)
    logs = read(write(tmp_path / "runs"), Options({"correct": ["loss"]}))
    assert [log.samples["correct"].tolist() for log in logs] == [[pytest.approx(loss[-1])] for loss in VALUES.values()]
    assert {note for log in logs for note in log.notes} == {"loss: the last value of each run"}


@pytest.mark.slow
def test_the_folder_of_the_summary_itself_is_a_run(tmp_path: Path) -> None:
    for folder in ("run-r0", "run-r0/files"):
        (log,) = read(wandb(tmp_path / folder.replace("/", "-")) / folder, Options({"correct": ["loss"]}))
        assert log.samples["correct"].tolist() == [2.0]


def test_mlflows_own_database(tmp_path: Path, empty_store: Path) -> None:
    from mlflow import MlflowClient

    (tmp_path / "mlflow.db").write_bytes(empty_store.read_bytes())
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.create_experiment("losses")
    for losses in VALUES.values():
        run = client.create_run(experiment).info.run_id
        for step, loss in enumerate(losses):
            client.log_metric(run, "loss", loss, step=step)
    logs = read(tmp_path / "mlflow.db", Options({"correct": ["loss"]}))
    assert sorted(log.samples["correct"].item() for log in logs) == [2.0, 2.1, 2.2]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("loss@max", [3.0, 3.1, 2.9]), ("loss@min", [2.0, 2.2, 2.1]), ("loss@mean2", [2.25, 2.3, 2.35])],
)
def test_another_value_of_each_run_is_said(tmp_path: Path, asked: str, expected: list[float]) -> None:
    logs = read(trackio(tmp_path / "runs"), Options({"correct": [asked]}))
    assert [log.samples["correct"].item() for log in logs] == pytest.approx(expected)
    assert logs[0].notes == (f"loss: the {asked.partition('@')[2]} value of each run",)


def test_scalars_that_are_not_there_are_named(tmp_path: Path) -> None:
    folder = trackio(tmp_path / "runs")
    with refused("bad_data", "3 runs", "loss"):
        read(folder, Options())
    with refused("bad_data", "'los'", "'loss'"):
        read(folder, Options({"correct": ["los"]}))


def test_the_runs_of_two_folders_are_seeds_of_two_sides(tmp_path: Path) -> None:
    sides = []
    for name, shift in (("base", 0.0), ("new", -0.4)):
        folder = tmp_path / name
        for run, losses in VALUES.items():
            files = folder / run / "files"
            files.mkdir(parents=True)
            (files / "wandb-summary.json").write_text(json.dumps({"loss": losses[-1] + shift}))
        sides.append(Side(name, tuple(read(folder, Options({"correct": ["loss"]})))))
    (row,) = records(of_logs(sides, Question(lower=True)).differences)
    assert (row["seeds"], row["difference"]) == (3, pytest.approx(-0.4))
    assert row["paired_by_seed"]
    assert row["why"].startswith("the difference is the same on every seed")
