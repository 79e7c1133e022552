"""Measures of the update: the activity of the hinge, gradients of single prompts, weights of prompts."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter, methodcaller
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures.base import Finding, Measure, by_step, class_of, mean_over_steps, means, without_nan
from mcpo_cli.methods import query_weight
from mcpo_cli.methods.mcpo import ACTIVE, DRIFT, FELT
from mcpo_cli.records import GradientRow, GroupRow, MiniBatchRow, StepRow
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import directions


def _hinge(spec: RunSpec, journal: Journal) -> Finding:
    """The activity of the hinge; empty for a method without a hinge.

    Table `mini_batches`: the same values for each place in the step, with variances over the steps; with anchor=rollout
    the first place has no drift.
    """
    rows = [row for row in journal.mini_batches() if FELT in row["sums"]]
    if not rows:
        return Finding({})
    steps, by_number = by_step(rows), defaultdict(list)
    for row in rows:
        by_number[row["mini_batch"]].append(row)
    table = [
        {"mini_batch": number, **_felt(of_mini_batch), **(_variance(of_mini_batch) if len(of_mini_batch) > 1 else {})}
        for number, of_mini_batch in sorted(by_number.items())
    ]
    variances = [{"step": step, **_variance(rows)} for step, rows in steps.items() if len(rows) > 1]
    values = means(variances, **{name: itemgetter(name) for name in ("variance_policy", "variance_added")})
    return Finding({**_felt(rows), **_switches(steps), **values}, {"mini_batches": table})


def _felt(rows: Sequence[MiniBatchRow]) -> dict[str, float]:
    return {
        **_share("prompts_felt", rows, FELT),
        **_share("tokens_active", rows, ACTIVE),
        **_share("drift", rows, DRIFT, of=ACTIVE),
        **means(rows, penalty=lambda row: _loss(row, "hinge"), on=_on),
    }


def _share(name: str, rows: Sequence[MiniBatchRow], metric: str, of: str = "") -> dict[str, float]:
    """The mean of a share over the mini-batches that define it, weighted by its denominator.

    of: the metric whose denominator the share has; by default its own.
    """
    part = [row for row in rows if metric in row["sums"] and row["sums"][of or metric][1]]
    counts = [int(row["sums"][of or metric][1]) for row in part]
    shares = [row["sums"][metric][0] / count for row, count in zip(part, counts, strict=True)]
    return mean_over_steps(name, shares, [row["step"] for row in part], counts)


def _loss(row: MiniBatchRow, term: str) -> float:
    """The value of a term of the loss; 0 if no sequence had a gradient."""
    return row["sums"].get(f"train/{term}_loss", [0.0])[0]


def _switches(steps: Mapping[int, Sequence[MiniBatchRow]]) -> dict[str, float]:
    return means(
        [pair for rows in steps.values() for pair in pairwise(rows)],
        lambda pair: pair[1]["step"],
        switched_on=lambda pair: _on(pair[1]) and not _on(pair[0]),
        switched_off=lambda pair: _on(pair[0]) and not _on(pair[1]),
    )


def _variance(rows: Sequence[MiniBatchRow]) -> dict[str, float]:
    """The variance of the loss without the hinge over at least two `rows`, and the increase by the hinge."""
    policy = statistics.variance(_loss(row, "policy") for row in rows)
    total = statistics.variance(_loss(row, "policy") + _loss(row, "hinge") for row in rows)
    return {"variance_policy": policy, "variance_added": total - policy}


def _on(row: MiniBatchRow) -> bool:
    return _loss(row, "hinge") > 0


HINGE = Measure(
    name="hinge",
    question="On how many mastered prompts does the hinge act, and how does its switching affect the loss?",
    needs=("mini_batches",),
    values={
        "prompts_felt": "share of mastered prompts outside the drift budget",
        "tokens_active": "share of the tokens of mastered prompts outside the drift budget",
        "drift": "mean |log pi - log pi_old| of the tokens of mastered prompts, nats",
        "penalty": "penalty, beta included, mean over gradient steps",
        "on": "share of mini-batches with a penalty above 0",
        "switched_on": "share of consecutive mini-batches of a step between which the hinge switches on",
        "switched_off": "share of consecutive mini-batches of a step between which the hinge switches off",
        "variance_policy": "variance of the loss without the hinge over the mini-batches of a step, mean over steps",
        "variance_added": "the increase of that variance by the hinge",
    },
    shows=("prompts_felt", "tokens_active", "drift", "penalty", "switched_on", "switched_off", "variance_added"),
    measure=_hinge,
)


GRADIENT_CLASSES = {"minority": "minority", "majority": "majority_correct"}
"""The classes of prompts with a policy gradient, by their names in values; mastered prompts have no such gradient."""


def _gradient(spec: RunSpec, journal: Journal) -> Finding:
    """Means over the measured prompts or steps.

    Table `steps`: one row per measured step.
    """
    measured = by_step(journal.gradients())
    steps = _gradient_steps(spec, measured, journal.groups())
    values: dict[str, float] = {"steps": float(len(steps))}
    values |= means(steps, **{name: methodcaller("get", name) for name in ("cosine_mastered", "signal_to_noise")})
    if cosines := [row["cosine_mastered"] for row in steps if "cosine_mastered" in row]:
        values["harmful_steps"] = sum(cosine < 0 for cosine in cosines) / len(cosines)
    return Finding({**values, **_classes(measured)}, {"steps": steps})


def _gradient_steps(
    spec: RunSpec, measured: dict[int, list[GradientRow]], groups: Iterable[GroupRow]
) -> list[dict[str, Any]]:
    batches = by_step(group for group in groups if group["kept"])
    table = []
    for step, rows in measured.items():
        p_P = [group["p"] for group in batches.get(step, [])]
        prompts = sum(0 < p < 1 for p in p_P) / len(p_P) * spec.train.mini_batch if p_P else math.nan
        cosine, ratio = directions.cosine(rows), directions.signal_to_noise(rows, prompts)
        table.append(
            {"step": step, "prompts": len(directions.mixed(rows)), "mastered": len(directions.mastered(rows))}
            | without_nan({"cosine_mastered": cosine, "signal_to_noise": ratio})
        )
    return table


def _classes(measured: dict[int, list[GradientRow]]) -> dict[str, float]:
    rows = [row for of_step in measured.values() for row in of_step]
    values = means(directions.mastered(rows), norm_mastered=itemgetter("norm"))
    for name, kind in GRADIENT_CLASSES.items():
        mixed = [row for row in directions.mixed(rows) if class_of(row["p"]) == kind]
        values |= means(mixed, **{f"norm_{name}": itemgetter("norm")})
    return values


GRADIENT = Measure(
    name="gradient",
    question="Does the update harm mastered prompts, and how large and noisy are the gradients behind it?",
    needs=("groups", "gradients"),
    values={
        "steps": "number of measured steps",
        "cosine_mastered": "cosine of the update's direction (the mean policy gradient of prompts with 0 < p < 1, "
        "before the optimizer) and the mean likelihood gradient of mastered prompts; below 0 the update harms them",
        "harmful_steps": "share of steps with a cosine below 0",
        "norm_minority": "norm of the policy gradient of single prompts with 0 < p <= .5",
        "norm_majority": "norm of the policy gradient of single prompts with .5 < p < 1",
        "norm_mastered": "norm of mastered prompts' likelihood gradients, which are not part of the loss",
        "signal_to_noise": "signal-to-noise ratio of a mini-batch's gradient",
    },
    shows=("cosine_mastered", "harmful_steps", "signal_to_noise", "norm_minority", "norm_majority"),
    measure=_gradient,
    settings=("probe.gradients_every=1", "probe.gradient_prompts=64"),
)


def _weights(spec: RunSpec, journal: Journal) -> Finding:
    """The weight of a prompt by its accuracy p, from theory and from gradients.

    Table `curve`: one row per p = k/G with 0 < k < G: `analytic` W(p), the mean `measured` weight with its interval,
    and the number of `prompts`.
    """
    rows = [row for row in journal.gradients() if "weight" in row]
    return Finding({**_measured(spec, rows), **_concentration(spec, journal.steps())}, {"curve": _curve(spec, rows)})


def _measured(spec: RunSpec, rows: Sequence[GradientRow]) -> dict[str, float]:
    def deviation(row: GradientRow) -> float | None:
        expected = float(query_weight(spec.method, row["p"], spec.train.rollouts))
        return None if math.isnan(expected) else row["weight"] - expected

    weights = means(rows, deviation=deviation, residual=methodcaller("get", "residual"))
    return {"prompts": float(len(rows)), **weights}


def _concentration(spec: RunSpec, steps: Sequence[StepRow]) -> dict[str, float]:
    def size(row: StepRow) -> float | None:
        return row["metrics"].get("weight/effective_sample")

    rollouts = spec.train.prompts * spec.train.rollouts
    return means(
        steps,
        share_minority=lambda row: row["metrics"].get("weight/share_minority"),
        effective_sample=size,
        effective_share=lambda row: None if (effective := size(row)) is None else effective / rollouts,
    )


def _curve(spec: RunSpec, rows: Sequence[GradientRow]) -> list[dict[str, Any]]:
    G, table = spec.train.rollouts, []
    for k in range(1, G):
        of_accuracy = [row for row in rows if round(row["p"] * G) == k]
        analytic = {"analytic": float(query_weight(spec.method, k / G, G))}
        line = {"p": k / G, "prompts": len(of_accuracy), **without_nan(analytic)}
        table.append(line | means(of_accuracy, measured=itemgetter("weight")))
    return table


WEIGHTS = Measure(
    name="weights",
    question="How much does a prompt weigh in the update, by its accuracy: in theory, and by its gradient?",
    needs=("gradients",),
    also=("steps",),
    values={
        "prompts": "number of prompts measured",
        "deviation": "measured weight minus `query_weight`, if the method has that curve; 0 for binary rewards without "
        "clipping, but not for shaped rewards",
        "residual": "the part of a prompt's gradient that no weight explains",
        "share_minority": "share of the training weight on prompts with 0 < p <= .5, mean over steps",
        "effective_sample": "Kish's effective number of rollouts of a batch, mean over steps",
        "effective_share": "Kish's effective number of rollouts of a batch over their number, mean over steps",
    },
    shows=("deviation", "residual", "share_minority", "effective_share", "prompts"),
    measure=_weights,
    settings=("probe.gradients_every=1", "probe.gradient_prompts=64"),
)

MEASURES = (HINGE, GRADIENT, WEIGHTS)
