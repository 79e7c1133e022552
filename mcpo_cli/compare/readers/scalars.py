"""Scalars that trackers recorded (W&B, trackio, TensorBoard, MLflow): one value of each run.

`--columns correct=NAME` names the scalar. Its last value counts; NAME@max, NAME@min and NAME@mean20 take the largest or
smallest one, or the mean of the last 20. The runs of one word are training seeds.
"""

import json
import math
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pandas as pd

from mcpo_cli import extras
from mcpo_cli.compare.log import WHOLE, Log, checked
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Reader
from mcpo_cli.compare.readers.cells import numbers_in
from mcpo_cli.compare.readers.columns import Options
from mcpo_cli.errors import bad_data, nearest

Rows = Iterator[tuple[str, str, float, float]]
"""Run, scalar, step and value."""
CHOICE = re.compile(r"(?P<name>.+?)(@(?P<how>last|max|min|mean\d+))?")


def read(path: Path, options: Options) -> list[Log]:
    """One log per run that recorded the scalar.

    Raises:
        ConfigError: no scalar was named, no run has it, or a file is damaged.
    """
    points = [row for source in (_wandb, _tensorboard, _mlflow_files, _databases) for row in source(path)]
    rows = pd.DataFrame(points, columns=["run", "scalar", "step", "value"])
    names = sorted({*rows["scalar"]})
    match = CHOICE.fullmatch(next(iter(options.columns.get("correct", ("",))), ""))
    if not match or match["name"] not in names:
        hint = f"none is named {match['name']!r}: {nearest(match['name'], names)}" if match else ", ".join(names)
        fix = "name the scalar to compare: --columns correct=NAME, or NAME@mean20, NAME@max"
        raise bad_data(f"{path}: it has the scalars of {rows['run'].nunique()} runs; {hint}", fix=fix)
    name, rule = match["name"], match["how"] or "last"
    curves = rows[rows["scalar"] == name].sort_values("step", kind="stable").groupby("run")["value"]
    values = {str(run): _value(curve, rule) for run, curve in curves}
    results = {run: value for run, value in values.items() if math.isfinite(value)}
    if not results:
        raise bad_data(f"{path}: no run has a finite value of {name!r}")
    left = sorted({*rows["run"]} - {*results})
    notes = [
        f"{name}: the {rule} value of each run",
        *(f"{run} was left out: it has no value of {name}" for run in left),
    ]
    labels = {"benchmark": options.benchmark or name, "problem": WHOLE}
    return [checked(path / run, pd.DataFrame({**labels, "correct": [results[run]]}), notes=notes) for run in results]


def _value(curve: pd.Series, rule: str) -> float:
    if rule in ("max", "min"):
        return float(curve.agg(rule))
    return float(curve.tail(1 if rule == "last" else int(rule.removeprefix("mean"))).mean(skipna=False))


def _wandb(path: Path) -> Rows:
    for file in sorted(path.rglob("wandb-summary.json")):
        run = str(file.parent.relative_to(path).parent)  # the folder above `files`, unless `path` is that one
        summary = base.settings_file(file)
        yield from ((run, name, 0, summary[name]) for name in numbers_in([summary]) if not name.startswith("_"))


def _tensorboard(path: Path) -> Rows:
    for folder in sorted({file.parent for file in path.rglob("events.out.tfevents.*")}):
        extras.require("tensorboard", f"reading {folder}")
        module = import_module("tensorboard.backend.event_processing.event_accumulator")
        events = module.EventAccumulator(str(folder), {"scalars": 0})
        events.Reload()
        for name in events.Tags()["scalars"]:
            yield from (
                (str(folder.relative_to(path)), name, point.step, point.value) for point in events.Scalars(name)
            )


def _mlflow_files(path: Path) -> Rows:
    for file in sorted(path.rglob("metrics/**/*")) if path.is_dir() else ():
        folder = next(parent for parent in file.parents if parent.name == "metrics")
        if file.is_file() and (folder.parent / "meta.yaml").is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                _, value, step = (*line.split(), "0")[:3]
                yield folder.parent.name, str(file.relative_to(folder)), float(step), float(value)


def _databases(path: Path) -> Rows:
    for file in [path] if path.is_file() else sorted(path.glob("*.db")):
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            columns = {row[1] for row in database.execute("PRAGMA table_info(metrics)")}
            if {"run_uuid", "key", "value", "step"} <= columns:
                yield from database.execute("SELECT run_uuid, key, step, value FROM metrics WHERE NOT is_nan")
            elif {"run_name", "step", "metrics"} <= columns:
                for run, step, text in database.execute("SELECT run_name, step, metrics FROM metrics"):
                    metrics = json.loads(text)
                    yield from ((run, name, step, metrics[name]) for name in numbers_in([metrics]))


def _recognises(path: Path) -> bool:
    patterns = ("**/wandb-summary.json", "**/events.out.tfevents.*", "*.db", "**/metrics")
    if path.is_file():
        return path.suffix == ".db"
    return path.is_dir() and any(next(iter(path.glob(pattern)), None) for pattern in patterns)


READER = Reader(
    name="scalars",
    about="scalars of W&B, trackio, TensorBoard or MLflow: a folder of runs or a .db (--columns correct=NAME)",
    recognises=_recognises,
    read=read,
    general=True,
)
