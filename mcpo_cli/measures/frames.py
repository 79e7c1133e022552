"""Tidy data frames with fixed dtypes, read from the journals. A plan with unfinished runs raises an error."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NotRequired, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from mcpo_cli import measures
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.errors import MissingRuns
from mcpo_cli.home import run_dir
from mcpo_cli.machine import freeze_gc
from mcpo_cli.measures import summary
from mcpo_cli.measures.base import Finding
from mcpo_cli.records import AXES, EvalRow, GradientRow, GroupRow, MiniBatchRow, RerollRow, SampleRow, StepRow
from mcpo_cli.runs import attempts
from mcpo_cli.runs.journal import Journal, Kind
from mcpo_cli.runs.provenance import environment, read
from mcpo_cli.statistics import stats

Tree = Literal["clean", "dirty", "unknown"]
Made = TypeVar("Made")
PAIR = ["base_seed", "seed"]
"""The columns by which the runs of different arms are paired: two base policies may be trained with equal seeds."""
RUN = {
    **dict.fromkeys(("arm", "method", "regime", "model"), "string"),
    **dict.fromkeys(PAIR, "int64"),
    "run_id": "string",
}
ROWS: Mapping[Kind, type] = {
    "groups": GroupRow,
    "eval": EvalRow,
    "rerolls": RerollRow,
    "mini_batches": MiniBatchRow,
    "gradients": GradientRow,
    "samples": SampleRow,
}
SEVERAL = {"commit": "commits", "torch": "versions of torch", "Python": "versions of Python", "processor": "CPUs"}
"""The parts of an environment (`runs/provenance.py`) that are reported where runs differ, in the plural."""
DTYPES = {int: "int64", float: "float64", str: "string", bool: "bool"}


@cache
def dtypes(kind: Kind) -> dict[str, str]:
    """The columns of `Runs.rows(kind)` and their dtypes: columns that name the run, then the schema of `records.py`.

    A missing value is <NA> in a nullable Int64 column and NaN in a float64 column; lists have dtype object.
    """
    hints = get_type_hints(ROWS[kind], include_extras=True)
    return RUN | {name: _dtype(hint) for name, hint in hints.items()}


def _dtype(hint: Any) -> str:
    if get_origin(hint) is NotRequired:
        dtype = _dtype(*get_args(hint))
        return "Int64" if dtype == "int64" else dtype
    if get_origin(hint) is Literal:
        return "string"
    return DTYPES.get(hint, "object")


class Cache:
    """Cache of per-run results, shared by plans and artifacts."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """The cached result for `key`; the first call for a key computes it with `make`."""
        if key not in self._kept:
            self._kept[key] = make()
        result: Made = self._kept[key]
        return result


class LoadedJournal(Journal):
    """A journal of a completed run, which many artifacts use and which is read once."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self._cache = Cache()

    def steps(self) -> list[StepRow]:
        """One row per global step, in order."""
        return self._cache.once("steps", partial(_to_stay, super().steps))

    def rows(self, kind: Kind) -> list[dict[str, Any]]:
        """The rows of `kind` from all steps, as plain data."""
        return self._cache.once(kind, partial(_to_stay, partial(super().rows, kind)))

    def files(self, kind: Kind) -> dict[int, Path]:
        """The file of each step with rows of `kind`, in order."""
        return self._cache.once(("files", kind), partial(super().files, kind))


def _to_stay(make: Callable[[], Made]) -> Made:
    """The result of `make`, frozen out of garbage collection: it lives until the process exits."""
    with freeze_gc():
        return make()


@dataclass(frozen=True)
class Failed:
    """A run that ended in an error. It is an outcome of its arm, without a score."""

    planned: PlannedRun
    error: str


class Runs:
    """The completed runs of a plan; their data are read once.

    Every frame begins with the columns arm, method, regime, model, base_seed, seed and run_id. Its rows follow the
    order of the plan and of the journal, so that tiers appear from easy to hard.
    """

    def __init__(self, plan: Plan, cache: Cache | None = None, *, failed_too: bool = False) -> None:
        """Find out which runs are done: `planned` has them.

        Args:
            cache: cache of single runs; plans that share a cache read their common runs once.
            failed_too: accept runs that ended in an error; they are in `failed`, and no frame has rows of them.

        Raises:
            MissingRuns: a run is not done; the message names each, what it lacks, and the command that completes it.
        """
        self.plan = plan
        self._cache, self._own = cache or Cache(), Cache()
        self.failed = tuple(_failed(plan)) if failed_too else ()
        failed_ids = {failure.planned.spec.run_id for failure in self.failed}
        self.planned = tuple(run for run in plan.runs if run.spec.run_id not in failed_ids)
        _check_done(plan, self.planned, self._cache)

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """The result of `make`, computed from these runs at the first call for a key."""
        return self._own.once(key, make)

    def of(self, arms: Sequence[str]) -> "Runs":
        """The completed runs of these arms alone."""
        return Runs(replace(self.plan, runs=tuple(run for run in self.planned if run.arm in arms)), self._cache)

    def journal(self, run: PlannedRun) -> LoadedJournal:
        """The journal of one run."""
        return _journal(self._cache, run)

    def rows(self, kind: Kind) -> pd.DataFrame:
        """All runs' rows of one kind, with the columns and dtypes of `dtypes(kind)`; possibly no rows."""

        def read() -> pd.DataFrame:
            rows: list[dict[str, Any]] = []
            for run in self.planned:
                labels = _run_columns(run)
                rows += ({**labels, **row} for row in self.journal(run).rows(kind))
            return pd.DataFrame(rows, columns=list(dtypes(kind))).astype(dtypes(kind))

        return self._own.once(("rows", kind), read)

    def eval(self, step: Literal["last", "all"] = "last") -> pd.DataFrame:
        """One row per held-out problem and evaluation, with the columns of `EvalRow`: c of n samples were correct.

        Args:
            step: only the evaluation after the last global step, or all evaluations (step 0 is the base policy).
        """
        rows = self.rows("eval")
        if step == "all":
            return rows
        last = {run.spec.run_id: run.spec.train.steps for run in self.planned}
        return rows[rows["step"] == rows["run_id"].map(last).astype("int64")].reset_index(drop=True)

    def scores(self, k: int | None = None) -> pd.DataFrame:
        """One row per run, evaluation and tier: the tier's score, and what training had cost by then.

        Columns after the columns that name the run: step, tier, the means over problems `pass@1`, `best@<k>` and
        `pass@<k>`, and one column per axis of cost (`records.AXES`); the base policy (step 0) has cost 0.

        Args:
            k: at most the graded samples of each problem; None means as many as the problem with the fewest has.
        """
        rows = self.eval(step="all")
        counts, size = (rows["n"].to_numpy(), rows["c"].to_numpy()), k or int(rows["n"].min())
        columns = {
            "pass@1": stats.pass_at_k(*counts, 1),
            f"best@{size}": stats.best_at_k(*counts, size),
            f"pass@{size}": stats.pass_at_k(*counts, size),
        }
        keys = [*RUN, "step", "tier"]
        scores = rows[keys].assign(**columns).groupby(keys, sort=False)[list(columns)].mean().reset_index()
        spent = self.steps().reindex(columns=["run_id", "step", *AXES])
        scores = scores.merge(spent, on=["run_id", "step"], how="left")
        scores.loc[scores["step"] == 0, list(AXES)] = 0.0
        return scores

    def steps(self) -> pd.DataFrame:
        """One row per global step, one float64 column per metric (`train/reward`, ...), in alphabetical order.

        A value is NaN if the metric was undefined at that step (for example without mastered prompts), does not exist
        for the method, or was recorded as NaN (listed by `marks`).
        """
        return self._own.once("steps", self._read_steps)

    def settings(self, *, wide: bool = False) -> pd.DataFrame:
        """One row per run and setting that decides its result: the columns `setting` and `value`, as text.

        wide: one row per run, and one column per setting, with its value.
        """
        if wide:
            return pd.DataFrame([{**run.spec.flat_identity(), **_run_columns(run)} for run in self.planned]).set_index(
                "run_id"
            )
        rows = [
            {**_run_columns(run), "setting": name, "value": str(value)}
            for run in self.planned
            for name, value in run.spec.flat_identity().items()
        ]
        return pd.DataFrame(rows).astype(RUN | {"setting": "string", "value": "string"})

    def _read_steps(self) -> pd.DataFrame:
        blocks = [self._cache.once(("steps", run.spec.run_id), partial(self._block, run)) for run in self.planned]
        metrics = pd.concat(blocks, ignore_index=True)
        sizes = [len(block) for block in blocks]
        labels = pd.DataFrame([_run_columns(run) for run in self.planned]).astype(RUN)
        table = labels.loc[labels.index.repeat(sizes)].reset_index(drop=True)
        return pd.concat([table, metrics[["step", *sorted(metrics.columns.drop("step"))]]], axis=1)

    def _block(self, run: PlannedRun) -> pd.DataFrame:
        """The metrics of one run, one row per global step."""
        rows = self.journal(run).steps()
        metrics = pd.DataFrame.from_records([row["metrics"] for row in rows]).astype(np.float64)
        metrics.insert(0, "step", np.array([row["step"] for row in rows], dtype=np.int64))
        return metrics

    def finding(self, probe: str, run: PlannedRun) -> Finding:
        """The result of a probe (`mcpo_cli/measures`) on one run.

        Raises:
            RunFailed: the run lacks the rows that the probe reads.
        """
        return self._cache.once(
            ("finding", probe, run.spec.run_id),
            lambda: summary.measure(measures.get(probe), run, self.journal(run)).finding,
        )

    def recorded(self, probe: str) -> list[PlannedRun]:
        """The runs that have all the kinds of rows that the probe reads."""
        return [run for run in self.planned if not measures.get(probe).lacks(self.journal(run))]

    def findings(self, probe: str, table: str | None = None, *, partial: bool = False) -> pd.DataFrame:
        """A probe's results on all runs: one row per run with its `values`, or the rows of its table `table`.

        Args:
            partial: leave out the runs that lack the rows that the probe reads.

        Raises:
            RunFailed: a run lacks the rows that the probe reads, and `partial` is False.
        """
        rows: list[dict[str, Any]] = []
        for run in self.recorded(probe) if partial else self.planned:
            finding = self.finding(probe, run)
            results = [finding.values] if table is None else finding.tables.get(table, ())
            rows += [{**_run_columns(run), **row} for row in results]
        return pd.DataFrame(rows).astype(RUN) if rows else pd.DataFrame(columns=list(RUN)).astype(RUN)

    def trees(self) -> dict[str, Tree]:
        """State of the working tree that each run was trained from, by run id."""
        return self._own.once("trees", lambda: {run.spec.run_id: tree(run) for run in self.planned})

    def marks(self) -> list[str]:
        """Warnings about these runs: uncommitted changes, several commits, metrics that are not finite."""
        return self._own.once("marks", lambda: [*code_marks(self.planned), *self.not_finite()])

    def not_finite(self) -> list[str]:
        """One warning per run and metric that was recorded as NaN or infinite."""
        return [
            mark
            for run in self.planned
            for mark in self._cache.once(("not finite", run.spec.run_id), partial(_not_finite, run, self.journal(run)))
        ]


def _failed(plan: Plan) -> Iterator[Failed]:
    for run in plan.runs:
        if (error := attempts.failure(run_dir(run.spec.run_id), run.spec)) is not None:
            yield Failed(run, error)


def _check_done(plan: Plan, runs: Sequence[PlannedRun], cache: Cache) -> None:
    """Raise MissingRuns unless `runs`, all or some runs of `plan`, are done."""
    gaps = [
        f"{run.arm}, {run.spec.model.name}, {run.spec.seeds} ({run.spec.run_id}): {gap}"
        for run in runs
        if (gap := cache.once(("gap", run.spec.run_id), partial(_gap, run, _journal(cache, run))))
    ]
    if gaps:
        head = f"{plan.suite}: {len(gaps)} of {len(plan.runs)} runs are not done"
        raise MissingRuns("\n  ".join([head, *gaps]), fix=plan.command)


def tree(run: PlannedRun) -> Tree:
    """State of the code of a run: dirty if any attempt's tree was, else unknown if any did not record its code.

    An installed package is clean: its record names the version and a hash of its files.
    """
    states = {False if record.get("package") else record.get("dirty") for record in provenance(run)}
    if True in states:
        return "dirty"
    return "unknown" if None in states else "clean"


def _journal(cache: Cache, run: PlannedRun) -> LoadedJournal:
    run_id = run.spec.run_id
    return cache.once(("journal", run_id), lambda: LoadedJournal(run_dir(run_id)))


def _gap(run: PlannedRun, journal: Journal) -> str | None:
    """The reason why a run is not done; None if it is."""
    state = attempts.state(journal.run_dir, run.spec, journal)
    if state == "done":
        return None
    gaps = [] if state == "planned" else attempts.missing(journal.run_dir, run.spec, journal)
    return "; ".join([state, *gaps])


def _run_columns(run: PlannedRun) -> dict[str, Any]:
    """The columns that name a run."""
    spec = run.spec
    facts = {"run_id": spec.run_id, "arm": run.arm, **spec.about}
    return {name: facts[name] for name in RUN}


def provenance(run: PlannedRun) -> list[dict[str, Any]]:
    """The provenance record of each attempt of a run (`runs/provenance.py`); empty if it was not recorded."""
    return [read(attempt) for attempt in Journal(run_dir(run.spec.run_id)).attempts()]


def code_marks(runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Warnings about what trained these runs: uncommitted changes, several commits, versions or CPUs."""
    trees = {run.spec.run_id: tree(run) for run in runs}
    for state, meaning in (
        ("dirty", "trained from a working tree with uncommitted changes"),
        ("unknown", "no record of the working tree"),
    ):
        if run_ids := [run_id for run_id, state_of_run in trees.items() if state_of_run == state]:
            listing = f" ({', '.join(run_ids)})" if len(run_ids) < len(trees) else ""
            yield f"{len(run_ids)} of {len(trees)} runs: {meaning}{listing}"
    runs_by: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        attempts = [environment(record) for record in provenance(run)]
        # A run counts once for each value that its attempts have.
        for name, value in {item for attempt in attempts for item in attempt.items()}:
            runs_by[name][value] += 1
    for name, plural in SEVERAL.items():
        if len(kinds := runs_by[name]) > 1:
            yield f"runs of several {plural}: " + ", ".join(f"{value} ({n})" for value, n in sorted(kinds.items()))


def _not_finite(run: PlannedRun, journal: Journal) -> list[str]:
    steps_of: dict[str, list[int]] = {}
    for row in journal.steps():
        # One check of the sum is quick: it is not finite if any value is not.
        if not math.isfinite(sum(row["metrics"].values())):
            for name, value in row["metrics"].items():
                if not math.isfinite(value):
                    steps_of.setdefault(name, []).append(row["step"])
    return [
        f"{run.spec.run_id}: {name} was NaN or infinite at {len(steps)} steps (first: {steps[0]})"
        for name, steps in steps_of.items()
    ]


def tables(runs: Runs) -> dict[str, pd.DataFrame]:
    """Name -> table: `settings`, `steps` and `scores` of `Runs`, and one for each kind of rows that the runs have.

    A row has the form of `records.py`; in `mini_batches` it is one metric of a mini-batch, `numerator / denominator`.
    """
    by_name = {"settings": runs.settings(), "steps": runs.steps(), "scores": runs.scores()}
    by_name |= {kind: rows for kind in ROWS if len(rows := runs.rows(kind))}
    if "mini_batches" in by_name:
        by_name["mini_batches"] = _one_metric_per_row(by_name["mini_batches"])
    return by_name


def _one_metric_per_row(mini_batches: pd.DataFrame) -> pd.DataFrame:
    keys = [*RUN, "step", "mini_batch"]
    rows = mini_batches[keys].assign(sums=mini_batches["sums"].map(lambda sums: list(sums.items()))).explode("sums")
    parts = [(metric, *map(float, sums)) for metric, sums in rows.pop("sums")]
    names = pd.DataFrame(parts, columns=["metric", "numerator", "denominator"]).astype({"metric": "string"})
    return pd.concat([rows.reset_index(drop=True), names], axis=1)
