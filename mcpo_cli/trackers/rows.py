"""The rows that every tracker gets: metrics of a run's steps and evaluations, from its journal."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from mcpo_cli.records import StepRow
from mcpo_cli.runs.journal import Journal, NewSteps, read_json
from mcpo_cli.runs.sanity import by_tier, evaluated

AVERAGE = "eval/average"
"""Replaces `eval/<tier>` for means over the tiers."""
MOST = 8
"""Largest k of pass@k and best@k, as in the paper."""


class Row(NamedTuple):
    """The metrics of one global step, or of the evaluation after it. seconds: its time, since the epoch."""

    step: int
    seconds: float
    metrics: Mapping[str, float]


class Rows:
    """The rows of a run that a tracker lacks.

    Args:
        step, evaluated: the last step and evaluation that the tracker has; -1 for no evaluation.
        live: whether it gets rows that a later attempt may replace.
    """

    def __init__(self, journal: Journal, step: int, evaluated: int, *, live: bool = False) -> None:
        self.journal, self.evaluated = journal, evaluated
        self._steps, self._live = NewSteps(journal, after=step), live

    @property
    def step(self) -> int:
        """The last step that was read."""
        return self._steps.last

    def new(self) -> list[Row]:
        """The rows since the last call, in the order of their steps."""
        steps = list(self._steps.read(math.inf if self._live else self.journal.final_step()))
        rows = [Row(row["step"], row["time"], step_metrics(row)) for row in steps]
        files = self.journal.files("eval").items()
        if evaluations := {step: path for step, path in files if self.evaluated < step <= self.step}:
            times = {row.step: row.seconds for row in rows}
            if not evaluations.keys() <= times.keys() | {0}:
                times = {row["step"]: row["time"] for row in self.journal.steps()}
            start = read_json(self.journal.attempts()[0] / "status.json")["started"]
            for step, path in evaluations.items():
                metrics = evaluation_metrics(self.journal.read(path))
                rows.append(Row(step, times.get(step, start), metrics))
            self.evaluated = max(evaluations)
        return sorted(rows, key=lambda row: row.step)


def step_metrics(row: StepRow) -> dict[str, float]:
    """The finite metrics of a step; `journal/nonfinite` counts the others."""
    finite = {key: value for key, value in row["metrics"].items() if math.isfinite(value)}
    count = len(row["metrics"]) - len(finite)
    return finite | ({"journal/nonfinite": float(count)} if count else {})


def evaluation_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of one evaluation, from its `EvalRow`s, with means over the tiers."""
    return evaluated(rows) | averages(rows)


def averages(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the tiers of one evaluation: `eval/average/pass_at_1`, `.../pass_at_<k>` and `.../best_at_<k>`.

    k is the number of graded samples of the problem with the fewest, at most MOST.
    """
    from mcpo_cli.statistics import stats  # scipy, for which no start of a run waits

    k = min(MOST, *(row["n"] for row in rows))
    tiers = list(by_tier(rows).values())
    n, c = ([row[name] for problems in tiers for row in problems] for name in ("n", "c"))
    # All problems in one call, because calls cost more than the computation.
    values: dict[str, Any] = {
        "pass_at_1": stats.pass_at_k(n, c, 1),
        f"pass_at_{k}": stats.pass_at_k(n, c, k),
        f"best_at_{k}": stats.best_at_k(n, c, k),
    }
    ends = list(accumulate(map(len, tiers)))
    places = [slice(end - len(problems), end) for problems, end in zip(tiers, ends, strict=True)]
    means = {name: [of_all[place].mean() for place in places] for name, of_all in values.items()}
    return {f"{AVERAGE}/{name}": float(math.fsum(of_tiers)) / len(tiers) for name, of_tiers in means.items()}
