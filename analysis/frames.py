"""Tidy frames with pinned dtypes, straight from the journals. A plan that is not done gives an error, never a gap."""

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NotRequired, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from mcpo_cli import probes
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.errors import MissingCells
from mcpo_cli.home import run_dir
from mcpo_cli.probes import study
from mcpo_cli.probes.base import Finding
from mcpo_cli.records import EvalRow, GradientRow, GroupRow, MiniBatchRow, RerollRow, SampleRow, StepRow
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import Journal, Kind, read_json

Tree = Literal["clean", "dirty", "unknown"]
Made = TypeVar("Made")
RUN = dict.fromkeys(("arm", "method", "regime", "model"), "string") | {"seed": "int64", "run_id": "string"}
ROWS: Mapping[Kind, type] = {
    "groups": GroupRow,
    "eval": EvalRow,
    "rerolls": RerollRow,
    "mini_batches": MiniBatchRow,
    "gradients": GradientRow,
    "samples": SampleRow,
}
DTYPES = {int: "int64", float: "float64", str: "string", bool: "bool"}


@cache
def dtypes(kind: Kind) -> dict[str, str]:
    """The columns of `rows(kind)` and their dtypes: those that name the run, then the schema of `records.py`.

    What a row may lack is <NA> in a nullable Int64 column and NaN in a float64 one; lists are objects.
    """
    hints = get_type_hints(ROWS[kind], include_extras=True)
    return RUN | {name: _dtype(hint) for name, hint in hints.items()}


def _dtype(hint: Any) -> str:
    if get_origin(hint) is NotRequired:
        found = _dtype(*get_args(hint))
        return "Int64" if found == "int64" else found
    if get_origin(hint) is Literal:
        return "string"
    return DTYPES.get(hint, "object")


class Shelf:
    """Keeps what was made of runs, for whoever asks again: plans share runs, and artifacts ask the same of them."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """What `make` gave the first time that somebody asked for `key`."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: Made = self._kept[key]
        return kept


class LoadedJournal(Journal):
    """A journal that is read once, for runs that are done and many artifacts that ask."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self._shelf = Shelf()

    def steps(self) -> list[StepRow]:
        """One row a global step, in order."""
        return self._shelf.once("steps", partial(_to_stay, super().steps))

    def rows(self, kind: Kind) -> list[dict[str, Any]]:
        """The rows of `kind` of all steps, as plain data."""
        return self._shelf.once(kind, partial(_to_stay, partial(super().rows, kind)))

    def files(self, kind: Kind) -> dict[int, Path]:
        """The file of each step, in order."""
        return self._shelf.once(("files", kind), partial(super().files, kind))


def _to_stay(make: Callable[[], Made]) -> Made:
    """What `make` gives. The garbage collector does not look at it over and over, as nobody throws it away."""
    gc.disable()
    try:
        return make()
    finally:
        gc.freeze()
        gc.enable()


class Runs:
    """The runs of a plan, all of them done; whatever is asked of them is read once.

    shelf: keeps what is read of single runs; one for several plans reads what they share once.

    Every frame has the columns arm, method, regime, model, seed and run_id first, and its rows in the order of the plan
    and of the journal, so that tiers appear from easy to hard.

    Raises:
        MissingCells: a run is not done; the message names each, what it lacks, and the command that fills it.
    """

    def __init__(self, plan: Plan, shelf: Shelf | None = None) -> None:
        self.plan = plan
        self._shelf, self._own = shelf or Shelf(), Shelf()
        self.cells = done(plan, self._shelf)

    def journal(self, cell: Cell) -> LoadedJournal:
        """The journal of one run."""
        return _journal(self._shelf, cell)

    def rows(self, kind: Kind) -> pd.DataFrame:
        """The rows of one kind of all runs, with the columns and dtypes of `dtypes(kind)`; a kind may have none."""

        def read() -> pd.DataFrame:
            found: list[dict[str, Any]] = []
            for cell in self.cells:
                about = _about(cell)
                found += ({**about, **row} for row in self.journal(cell).rows(kind))
            return pd.DataFrame(found, columns=list(dtypes(kind))).astype(dtypes(kind))

        return self._own.once(("rows", kind), read)

    def eval(self, step: Literal["last", "all"] = "last") -> pd.DataFrame:
        """One row a held-out problem and evaluation, the columns of `EvalRow`: c of n samples were right.

        Args:
            step: the evaluation after the last global step, or all of them (step 0 is the base policy).
        """
        found = self.rows("eval")
        if step == "all":
            return found
        last = {cell.spec.run_id: cell.spec.train.steps for cell in self.cells}
        return found[found["step"] == found["run_id"].map(last).astype("int64")].reset_index(drop=True)

    def steps(self) -> pd.DataFrame:
        """One row a global step, wide: a float64 column a metric (`train/reward`, ...), in alphabetical order.

        NaN where a metric was not defined at a step (no mastered prompt, say), does not exist for a method, or was
        recorded as NaN (which `marks` says).
        """
        return self._own.once("steps", self._read_steps)

    def _read_steps(self) -> pd.DataFrame:
        blocks = [self._shelf.once(("steps", cell.spec.run_id), partial(self._block, cell)) for cell in self.cells]
        found = pd.concat(blocks, ignore_index=True)
        sizes = [len(block) for block in blocks]
        about = pd.DataFrame([_about(cell) for cell in self.cells]).astype(RUN)
        named = about.loc[about.index.repeat(sizes)].reset_index(drop=True)
        return pd.concat([named, found[["step", *sorted(found.columns.drop("step"))]]], axis=1)

    def _block(self, cell: Cell) -> pd.DataFrame:
        """The steps of one run."""
        rows = self.journal(cell).steps()
        metrics = pd.DataFrame.from_records([row["metrics"] for row in rows]).astype(np.float64)
        metrics.insert(0, "step", np.array([row["step"] for row in rows], dtype=np.int64))
        return metrics

    def finding(self, probe: str, cell: Cell) -> Finding:
        """What the probe `probe` of `mcpo_cli/probes` says of the records of one run.

        Raises:
            RunFailed: the run has none of the rows that the probe reads.
        """
        return self._shelf.once(
            ("finding", probe, cell.spec.run_id),
            lambda: study.measure(probes.get(probe), cell, self.journal(cell)).finding,
        )

    def recorded(self, probe: str) -> list[Cell]:
        """The cells that have all kinds of rows that the probe reads."""
        return [cell for cell in self.cells if not probes.get(probe).lacks(self.journal(cell))]

    def findings(self, probe: str, table: str | None = None, *, partial: bool = False) -> pd.DataFrame:
        """What a probe says of all runs: a row a run with its `values`, or the rows of `table`; as the probe has them.

        Args:
            partial: leave out the runs that have none of the rows that the probe reads.

        Raises:
            RunFailed: a run has none of the rows that the probe reads, and not `partial`.
        """
        found = []
        for cell in self.recorded(probe) if partial else self.cells:
            finding = self.finding(probe, cell)
            rows = [finding.values] if table is None else finding.tables.get(table, ())
            found += [{**_about(cell), **row} for row in rows]
        return pd.DataFrame(found).astype(RUN) if found else pd.DataFrame(columns=list(RUN)).astype(RUN)

    def trees(self) -> dict[str, Tree]:
        """The working tree each run was trained from, by run id."""
        return self._own.once("trees", lambda: {cell.spec.run_id: tree(cell) for cell in self.cells})

    def marks(self) -> list[str]:
        """What a reader must know of these runs: uncommitted changes, several commits, values that are no number."""
        return self._own.once("marks", lambda: [*code_marks(self.cells), *self.not_finite()])

    def not_finite(self) -> list[str]:
        """The metrics of each run that were recorded as no finite number."""
        return [
            mark
            for cell in self.cells
            for mark in self._shelf.once(
                ("not finite", cell.spec.run_id), partial(_not_finite, cell, self.journal(cell))
            )
        ]


def done(plan: Plan, shelf: Shelf) -> tuple[Cell, ...]:
    """The cells of `plan`, all of them done.

    Raises:
        MissingCells: naming each cell that is not, what it lacks, and the command that fills it.
    """
    found = (
        (cell, shelf.once(("gap", cell.spec.run_id), partial(_gap, cell, _journal(shelf, cell)))) for cell in plan.cells
    )
    gaps = [
        f"{cell.arm}, {cell.spec.model.name}, seed {cell.spec.seed} ({cell.spec.run_id}): {gap}"
        for cell, gap in found
        if gap
    ]
    if gaps:
        head = f"{plan.suite}: {len(gaps)} of {len(plan.cells)} runs are not done"
        raise MissingCells("\n  ".join([head, *gaps]), fix=plan.command)
    return plan.cells


def tree(cell: Cell) -> Tree:
    """The working tree a run was trained from: dirty when any attempt was, unknown when any did not record it."""
    found = {record.get("dirty") for record in provenance(cell)}
    if True in found:
        return "dirty"
    return "unknown" if None in found else "clean"


def _journal(shelf: Shelf, cell: Cell) -> LoadedJournal:
    run_id = cell.spec.run_id
    return shelf.once(("journal", run_id), lambda: LoadedJournal(run_dir(run_id)))


def _gap(cell: Cell, journal: Journal) -> str | None:
    """Why a run is not done."""
    state = attempts.state(journal.run_dir, cell.spec, journal)
    if state == "done":
        return None
    lost = [] if state == "planned" else attempts.missing(journal.run_dir, cell.spec, journal)
    return "; ".join([state, *lost])


def _about(cell: Cell) -> dict[str, Any]:
    """The columns that name a run."""
    spec = cell.spec
    about = {"arm": cell.arm, "method": spec.method.name, "regime": spec.regime, "model": spec.model.name}
    return {**about, "seed": spec.seed, "run_id": spec.run_id}


def provenance(cell: Cell) -> list[dict[str, Any]]:
    """What each attempt of a run was made by (`runs/provenance.py`); empty where that was not recorded."""
    paths = [attempt / "provenance.json" for attempt in Journal(run_dir(cell.spec.run_id)).attempts()]
    return [read_json(path) if path.exists() else {} for path in paths]


def code_marks(cells: Sequence[Cell]) -> Iterator[str]:
    """What a reader must know of the code that made these runs: uncommitted changes, several commits."""
    trees = {cell.spec.run_id: tree(cell) for cell in cells}
    for state, meaning in (
        ("dirty", "trained from a working tree with uncommitted changes"),
        ("unknown", "no record of the working tree"),
    ):
        found = [run_id for run_id, one in trees.items() if one == state]
        if found:
            yield f"{len(found)} of {len(trees)} runs: {meaning} ({', '.join(found)})"
    commits: dict[str, int] = {}
    for cell in cells:
        for commit in {record["commit"][:12] for record in provenance(cell) if record.get("commit")}:
            commits[commit] = commits.get(commit, 0) + 1
    if len(commits) > 1:
        yield "runs of several commits: " + ", ".join(f"{commit} ({n})" for commit, n in sorted(commits.items()))


def _not_finite(cell: Cell, journal: Journal) -> list[str]:
    lost: dict[str, list[int]] = {}
    for row in journal.steps():
        # The sum, as it is quick: it is no finite number where one of them is none.
        if not math.isfinite(sum(row["metrics"].values())):
            for name, value in row["metrics"].items():
                if not math.isfinite(value):
                    lost.setdefault(name, []).append(row["step"])
    return [
        f"{cell.spec.run_id}: {name} was no finite number at {len(steps)} steps (first: {steps[0]})"
        for name, steps in lost.items()
    ]
