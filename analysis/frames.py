"""Tidy frames with pinned dtypes, straight from the journals. A plan that is not done gives an error, never a gap."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import pandas as pd

from mcpo_cli.errors import MissingCells
from mcpo_cli.plan import Cell, Plan
from mcpo_cli.runs import attempts
from mcpo_cli.runs.home import run_dir
from mcpo_cli.runs.journal import Journal, read_json

Tree = Literal["clean", "dirty", "unknown"]
RUN = {"arm": "string", "method": "string", "model": "string", "seed": "int64", "run_id": "string"}
EVAL = {**RUN, "tier": "string", "problem": "string", "n": "int64", "c": "int64", "step": "int64"}
GROUPS = {**RUN, "step": "int64", "prompt": "string", "p": "float64", "mean_length": "float64", "kept": "bool"}


def eval_frame(plan: Plan, step: Literal["last", "all"] = "last") -> pd.DataFrame:
    """One row a held-out problem and evaluation: c of n samples were right.

    Columns: arm, method, model, seed, run_id, tier, problem, n, c, step. Rows in the order of the plan and of
    the journal, so tiers appear from easy to hard.

    Args:
        plan: runs that are all done.
        step: the evaluation after the last global step, or all of them (step 0 is the base policy).

    Raises:
        MissingCells: a run is not done.
    """

    def rows(cell: Cell, journal: Journal) -> Iterator[Mapping[str, Any]]:
        return (row for row in journal.eval() if step == "all" or row["step"] == cell.spec.train.steps)

    return _frame(plan, EVAL, rows)


def steps_frame(plan: Plan) -> pd.DataFrame:
    """One row a global step, wide: a float64 column a metric (`train/reward`, ...), in alphabetical order.

    Columns before them: arm, method, model, seed, run_id, step. NaN where a metric was not defined at a step
    (no mastered prompt, say) or does not exist for a method.

    Raises:
        MissingCells: a run is not done.
    """
    journals = {cell.spec.run_id: Journal(run_dir(cell.spec.run_id)).steps() for cell in done(plan)}
    names = sorted({name for steps in journals.values() for row in steps for name in row["metrics"]})

    def rows(cell: Cell, _: Journal) -> Iterator[Mapping[str, Any]]:
        return ({"step": row["step"], **row["metrics"]} for row in journals[cell.spec.run_id])

    return _frame(plan, {**RUN, "step": "int64", **dict.fromkeys(names, "float64")}, rows)


def groups_frame(plan: Plan) -> pd.DataFrame:
    """One row a prompt group and global step: p is its rollout accuracy, kept whether it entered the batch.

    Columns: arm, method, model, seed, run_id, step, prompt, p, mean_length (tokens), kept.

    Raises:
        MissingCells: a run is not done.
    """
    return _frame(plan, GROUPS, lambda _, journal: journal.groups())


def done(plan: Plan) -> tuple[Cell, ...]:
    """The cells of `plan`, all of them done.

    Raises:
        MissingCells: naming each cell that is not, what it lacks, and the command that fills it.
    """
    gaps = [line for cell in plan.cells if (line := _gap(cell))]
    if gaps:
        head = f"{plan.suite}: {len(gaps)} of {len(plan.cells)} runs are not done"
        raise MissingCells("\n  ".join([head, *gaps]), fix=plan.command)
    return plan.cells


def tree(run_id: str) -> Tree:
    """The working tree a run was trained from: dirty when any attempt was, unknown when any did not record it."""
    found = set()
    for attempt in Journal(run_dir(run_id)).attempts():
        path = attempt / "provenance.json"
        found.add(read_json(path).get("dirty") if path.exists() else None)
    if True in found:
        return "dirty"
    return "unknown" if None in found else "clean"


def _gap(cell: Cell) -> str | None:
    folder = run_dir(cell.spec.run_id)
    state = attempts.state(folder, cell.spec)
    if state == "done":
        return None
    lost = "" if state == "planned" else "; ".join(["", *attempts.missing(folder, cell.spec)])
    return f"{cell.arm}, {cell.spec.model.name}, seed {cell.spec.seed} ({cell.spec.run_id}): {state}{lost}"


def _frame(
    plan: Plan, dtypes: Mapping[str, str], rows: Callable[[Cell, Journal], Iterable[Mapping[str, Any]]]
) -> pd.DataFrame:
    """The rows of all cells below each other, each with the columns that name its run."""
    found = []
    for cell in done(plan):
        spec = cell.spec
        run: dict[str, Any] = {"arm": cell.arm, "method": spec.method.name, "model": spec.model.name}
        run |= {"seed": spec.seed, "run_id": spec.run_id}
        found += [{**run, **row} for row in rows(cell, Journal(run_dir(spec.run_id)))]
    return pd.DataFrame(found, columns=list(dtypes)).astype(dict(dtypes))
