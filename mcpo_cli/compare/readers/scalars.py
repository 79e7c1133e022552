"""Scalars that trackers recorded: one value of each run, of W&B, trackio, TensorBoard and MLflow.

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
from statistics import fmean

import pandas as pd

from mcpo_cli import extras
from mcpo_cli.compare.log import WHOLE, Log, checked
from mcpo_cli.compare.readers import base
from mcpo_cli.compare.readers.base import Options, Reader
from mcpo_cli.errors import bad_data, nearest

Curve = list[tuple[float, float]]
"""Steps and values of one scalar of one run."""
Runs = dict[str, dict[str, Curve]]
"""By run and scalar."""
CHOICE = re.compile(r"(?P<name>.+?)(@(?P<how>last|max|min|mean\d+))?")


def read(path: Path, options: Options) -> list[Log]:
    """One log per run that recorded the scalar.

    Raises:
        ConfigError: no scalar was named, no run has it, or a file is damaged.
    """
    runs = _runs(path)
    known = sorted({name for curves in runs.values() for name in curves})
    asked = CHOICE.fullmatch(next(iter(options.columns.get("correct", ("",))), ""))
    if not asked or asked["name"] not in known:
        named = f"none is named {asked['name']!r}: {nearest(asked['name'], known)}" if asked else ", ".join(known)
        fix = "name the scalar to compare: --columns correct=NAME, or NAME@mean20, NAME@max"
        raise bad_data(f"{path}: it has the scalars of {len(runs)} runs; {named}", fix=fix)
    name, how = asked["name"], asked["how"] or "last"
    chosen = {run: value for run, curves in runs.items() if math.isfinite(value := _value(curves.get(name, []), how))}
    left = sorted(runs.keys() - chosen.keys())
    notes = [f"{name}: the {how} value of each run"] + [
        f"{run} was left out: it has no value of {name}" for run in left
    ]
    if not chosen:
        raise bad_data(f"{path}: no run has a finite value of {name!r}")
    about = {"benchmark": options.benchmark or name, "problem": WHOLE}
    return [checked(path / run, pd.DataFrame({**about, "correct": [chosen[run]]}), notes=notes) for run in chosen]


def _value(curve: Curve, how: str) -> float:
    values = [value for _, value in sorted(curve)]
    if not values or how in ("max", "min"):
        return math.nan if not values else max(values) if how == "max" else min(values)
    return fmean(values[-1:] if how == "last" else values[-int(how.removeprefix("mean")) :])


def _runs(path: Path) -> Runs:
    found: Runs = {}
    for source in (_wandb, _tensorboard, _mlflow_files, _databases):
        for run, name, step, value in source(path):
            found.setdefault(run, {}).setdefault(name, []).append((step, value))
    return found


Rows = Iterator[tuple[str, str, float, float]]


def _wandb(path: Path) -> Rows:
    for file in sorted(path.rglob("wandb-summary.json")):
        run = str(file.parent.parent.relative_to(path))
        for name, value in base.settings_file(file).items():
            if isinstance(value, int | float) and not name.startswith("_"):
                yield run, name, 0.0, float(value)


def _tensorboard(path: Path) -> Rows:
    for folder in sorted({file.parent for file in path.rglob("events.out.tfevents.*")}):
        extras.require("tensorboard", f"reading {folder}")
        module = import_module("tensorboard.backend.event_processing.event_accumulator")
        events = module.EventAccumulator(str(folder), {"scalars": 0})
        events.Reload()
        for name in events.Tags()["scalars"]:
            yield from ((str(folder.relative_to(path)), name, one.step, one.value) for one in events.Scalars(name))


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
                    numbers = {
                        name: value for name, value in json.loads(text).items() if isinstance(value, int | float)
                    }
                    yield from ((run, name, step, float(value)) for name, value in numbers.items())


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
