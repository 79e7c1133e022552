"""mcpo's own results: a run, the runs of a suite, or an evaluation, by name or by folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mcpo_cli.compare.equal_cost import seed_name
from mcpo_cli.compare.log import Log, checked
from mcpo_cli.compare.readers import evaluations
from mcpo_cli.compare.readers.base import Reader, only
from mcpo_cli.compare.readers.cells import stated
from mcpo_cli.compare.readers.columns import Options
from mcpo_cli.config import plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import MissingRuns
from mcpo_cli.home import location
from mcpo_cli.runs import catalog
from mcpo_cli.runs.journal import Journal


def read(path: Path, options: Options) -> list[Log]:
    """The log of a run or an evaluation, or one log per run of a suite, whose `model` is its arm.

    A run gives the evaluation after its last global step, an evaluation the newest grading of each benchmark.

    Raises:
        MissingRuns: a run is not done.
        RunFailed: a record is damaged.
    """
    folder = _folder(path)
    if folder is None:
        return _of_suite(str(path), options)
    if (folder / "gradings").is_dir():
        return [evaluations.of_evaluation(folder, options)]
    spec = catalog.spec(folder)
    rows = _last(folder, spec)
    if not rows:
        raise MissingRuns(f"{folder.name} is not done", fix=f"mcpo runs show {folder.name}")
    return [_of_run(folder, spec, rows, spec.run_id, options)]


def _folder(path: Path) -> Path | None:
    """The folder of the run or evaluation that `path` is or names; None if it is neither."""
    if path.exists():
        is_own = (path / "spec.json").is_file() or any(path.glob("gradings/*/results.json"))
        return path.resolve() if is_own else None
    home, name = location(), str(path)
    evaluations = {folder.name: folder for folder in (home / "evals").glob("*") if (folder / "gradings").is_dir()}
    if plan.is_suite(name):
        return None
    if name in evaluations:
        return evaluations[name]
    runs = catalog.folders(home)
    return catalog.find(home, name).folder if any(folder.name.startswith(name) for folder in runs) else None


def _of_suite(name: str, options: Options) -> list[Log]:
    suite = plan.from_suite(name, [], f"mcpo train {name}")
    runs = location() / "runs"
    rows_of = [(run, _last(runs / run.spec.run_id, run.spec)) for run in suite.runs]
    if gaps := [run for run, rows in rows_of if not rows]:
        listed = "".join(f"\n  {run.arm}, {run.spec.seeds} ({run.spec.run_id})" for run in gaps)
        raise MissingRuns(f"{name}: {len(gaps)} of {len(rows_of)} runs are not done:{listed}", fix=suite.command)
    several = len({run.spec.model.name for run in suite.runs}) > 1
    return [
        _of_run(
            runs / run.spec.run_id,
            run.spec,
            rows,
            f"{run.arm} {run.spec.model.name}" if several else run.arm,
            options,
        )
        for run, rows in rows_of
    ]


def _last(folder: Path, spec: RunSpec) -> list[dict[str, Any]]:
    """The rows of the evaluation after the last global step; empty if the run is not done."""
    journal = Journal(folder)
    path = journal.files("eval").get(spec.train.steps)
    return journal.read(path) if path else []


def _of_run(folder: Path, spec: RunSpec, rows: Sequence[Mapping[str, Any]], model: str, options: Options) -> Log:
    counts = np.array([(row["n"], row["c"]) for row in rows])
    # Records have only the number c of correct samples out of n; their order does not matter.
    sample_N = np.concatenate([np.arange(n) for n in counts[:, 0]])
    place_N = np.repeat(np.arange(len(rows)), counts[:, 0])
    problems = pd.DataFrame(rows)[["tier", "problem"]].take(place_N).reset_index(drop=True)
    samples = problems.rename(columns={"tier": "benchmark"}).assign(
        correct=(sample_N < counts[place_N, 1]).astype(float),
        seed=seed_name(spec.seed_of_base, spec.seed),
        prompt=problems["problem"],
    )
    if options.benchmark:
        samples = only(folder, samples, options.benchmark)
    facts = stated(
        {
            "task": spec.identity()["task"],
            "step": spec.train.steps,
            "temperature": spec.eval.temperature,
            "max tokens": spec.train.max_response,
            "backend": spec.backend,
        }
    )
    return checked(folder, samples, dict.fromkeys(samples["benchmark"].unique(), facts), model)


READER = Reader(
    name="mcpo",
    about="mcpo: the name or folder of a run (`mcpo runs list`) or evaluation, or the name of a suite",
    recognises=lambda path: _folder(path) is not None or (not path.exists() and plan.is_suite(str(path))),
    read=read,
)
