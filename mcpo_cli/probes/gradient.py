"""Gradients of single prompts: their size by class, their noise, and whether the update harms mastered prompts."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe, known
from mcpo_cli.probes.classes import class_of
from mcpo_cli.probes.intervals import by_step, mean_over_steps
from mcpo_cli.records import GradientRow, GroupRow
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import directions

CLASSES = {"minority": "minority", "majority": "majority_correct"}
"""The classes of prompts with a policy gradient, by their names in values; mastered prompts have none."""


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """Means over the measured prompts or steps.

    Values:
    - `cosine_mastered`: cosine of the update's direction (the mean policy gradient of prompts with 0 < p < 1, before
      the optimizer) and the mean likelihood gradient of mastered prompts; below 0 the update harms them, to first
      order.
    - `harmful_steps`: share of steps with a cosine below 0; `steps`: number of measured steps.
    - `cosine_minority`, `cosine_majority`: the same cosine of single prompts with 0 < p <= 0.5 and 0.5 < p < 1.
    - `norm_minority`, `norm_majority`: norms of their policy gradients.
    - `norm_mastered`: norm of mastered prompts' likelihood gradients, which are not part of the loss.
    - `signal_to_noise`: of a mini-batch's gradient (`statistics.directions`).

    Table `steps`: one row per measured step; `cosine_error` is the jackknife standard error. Table `norms`: one row per
    accuracy with mean, deciles and median of the norm, and the mean cosine with the mastered prompts' direction.
    """
    measured = by_step(journal.gradients())
    steps = _steps(spec, measured, journal.groups())
    values: dict[str, float] = {"steps": float(len(steps))}
    for name in ("cosine_mastered", "signal_to_noise"):
        values |= mean_over_steps(name, *_column(steps, name))
    cosines, _ = _column(steps, "cosine_mastered")
    if cosines:
        values["harmful_steps"] = sum(cosine < 0 for cosine in cosines) / len(cosines)
    return Finding({**values, **_classes(measured)}, {"steps": steps, "norms": _norms(measured)})


def _steps(spec: RunSpec, measured: dict[int, list[GradientRow]], groups: Iterable[GroupRow]) -> list[dict[str, Any]]:
    batches = by_step(group for group in groups if group["kept"])
    table = []
    for step, rows in measured.items():
        p_P = [group["p"] for group in batches.get(step, [])]
        prompts = sum(0 < p < 1 for p in p_P) / len(p_P) * spec.train.mini_batch if p_P else math.nan
        line: dict[str, Any] = {"step": step, "prompts": len(directions.mixed(rows))}
        line["mastered"] = len(directions.mastered(rows))
        table.append(
            line
            | known(
                {
                    "cosine_mastered": directions.cosine(rows),
                    "cosine_error": directions.cosine_error(rows),
                    "signal_to_noise": directions.signal_to_noise(rows, prompts),
                }
            )
        )
    return table


def _classes(measured: dict[int, list[GradientRow]]) -> dict[str, float]:
    rows = [row for own in measured.values() for row in own]
    cosines = _cosines(measured)
    kept = directions.mastered(rows)
    values = mean_over_steps("norm_mastered", [row["norm"] for row in kept], [row["step"] for row in kept])
    for name, kind in CLASSES.items():
        here = [row for row in directions.mixed(rows) if class_of(row["p"]) == kind]
        values |= mean_over_steps(f"norm_{name}", [row["norm"] for row in here], [row["step"] for row in here])
        pairs = [(cosine, row["step"]) for row, cosine in cosines if class_of(row["p"]) == kind]
        values |= mean_over_steps(f"cosine_{name}", [cosine for cosine, _ in pairs], [step for _, step in pairs])
    return values


def _cosines(measured: dict[int, list[GradientRow]]) -> list[tuple[GradientRow, float]]:
    """Each prompt with 0 < p < 1, and the cosine of its gradient with that of the step's mastered prompts."""
    pairs = []
    for rows in measured.values():
        kept = directions.mastered(rows)
        square = sum(row["with_mastered"] for row in kept) / len(kept) if kept else 0.0
        if square > 0:
            pairs += [
                (row, row["with_mastered"] / (row["norm"] * math.sqrt(square)))
                for row in directions.mixed(rows)
                if row["norm"]
            ]
    return pairs


def _norms(measured: dict[int, list[GradientRow]]) -> list[dict[str, Any]]:
    norms, cosines = defaultdict(list), defaultdict(list)
    for rows in measured.values():
        for row in rows:
            norms[row["p"]].append(row["norm"])
    for row, cosine in _cosines(measured):
        cosines[row["p"]].append(cosine)
    table = []
    for p, values in sorted(norms.items()):
        low, middle, high = (float(value) for value in np.quantile(values, [0.1, 0.5, 0.9]))
        line: dict[str, Any] = {"p": p, "prompts": len(values), "mean": float(np.mean(values))}
        line |= {"decile_1": low, "median": middle, "decile_9": high}
        table.append(line | ({"cosine_mastered": float(np.mean(cosines[p]))} if cosines[p] else {}))
    return table


def _column(table: Sequence[dict[str, Any]], name: str) -> tuple[list[float], list[int]]:
    """The values of a column and their steps, without the rows that lack the column."""
    rows = [row for row in table if name in row]
    return [row[name] for row in rows], [row["step"] for row in rows]


PROBE = Probe(
    name="gradient",
    question="Does the update harm mastered prompts, and how large and noisy are the gradients behind it?",
    needs=("groups", "gradients"),
    shows=("cosine_mastered", "harmful_steps", "signal_to_noise", "norm_minority", "norm_majority"),
    measure=measure,
    settings=("probe.gradients_every=1", "probe.gradient_prompts=64"),
)
