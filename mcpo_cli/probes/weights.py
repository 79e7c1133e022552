"""Query weights (Figs. 3b and 4): the method's curve W(p), the weights measured in gradients, their concentration."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.methods import query_weight
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.probes.intervals import mean_over_steps
from mcpo_cli.records import GradientRow, GroupRow, StepRow
from mcpo_cli.runs.journal import Journal


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """The weight of a prompt by its accuracy p, from theory and from gradients.

    Values:
    - `deviation`: mean of the measured weight minus `query_weight`, if the method has that curve; 0 for binary rewards
      without clipping, but not for shaped rewards. `prompts`: number of prompts measured.
    - `residual`: the part of a prompt's gradient that no weight explains.
    - `share_minority`: share of the training weight on prompts with 0 < p <= 0.5, as a mean over global steps.
    - `effective_sample`: Kish's effective number of rollouts of a batch, as a mean over global steps;
      `effective_share`: the same as a share of the batch's rollouts.

    Table `curve`: one row per p = k/G with 0 < k < G: `analytic` W(p), the mean `measured` weight with its interval,
    the number of `prompts`, `residual`, and the share of this p in the prompts with 0 < p < 1 (`share_prompts`), in the
    analytic weight (`share_weight`) and in the norm of the measured gradients (`share_norm`).
    """
    rows = [row for row in journal.gradients() if "weight" in row]
    return Finding(
        {**_measured(spec, rows), **_concentration(spec, journal.steps())},
        {"curve": _curve(spec, rows, journal.groups())},
    )


def _measured(spec: RunSpec, rows: Sequence[GradientRow]) -> dict[str, float]:
    expected = [float(query_weight(spec.method, row["p"], spec.train.rollouts)) for row in rows]
    known = [(row, weight) for row, weight in zip(rows, expected, strict=True) if not math.isnan(weight)]
    deviations = [row["weight"] - weight for row, weight in known]
    left = [row for row in rows if "residual" in row]
    return {
        "prompts": float(len(rows)),
        **mean_over_steps("deviation", deviations, [row["step"] for row, _ in known]),
        **mean_over_steps("residual", [row["residual"] for row in left], [row["step"] for row in left]),
    }


def _concentration(spec: RunSpec, steps: Sequence[StepRow]) -> dict[str, float]:
    rollouts = spec.train.prompts * spec.train.rollouts
    sources = {
        "share_minority": ("weight/share_minority", 1),
        "effective_sample": ("weight/effective_sample", 1),
        "effective_share": ("weight/effective_sample", rollouts),
    }
    values: dict[str, float] = {}
    for name, (metric, divisor) in sources.items():
        here = [(row["metrics"][metric] / divisor, row["step"]) for row in steps if metric in row["metrics"]]
        values |= mean_over_steps(name, [value for value, _ in here], [step for _, step in here])
    return values


def _curve(spec: RunSpec, rows: Sequence[GradientRow], groups: Iterable[GroupRow]) -> list[dict[str, Any]]:
    G = spec.train.rollouts
    batch = Counter(round(row["p"] * G) for row in groups if row["kept"] and 0 < row["p"] < 1)
    analytic = {k: float(query_weight(spec.method, k / G, G)) for k in range(1, G)}
    total = sum(batch[k] * weight for k, weight in analytic.items())
    norm = sum(row["norm"] for row in rows)
    table = []
    for k, weight in analytic.items():
        here = [row for row in rows if round(row["p"] * G) == k]
        steps = [row["step"] for row in here]
        line: dict[str, Any] = {"p": k / G, "prompts": len(here)}
        if not math.isnan(weight):
            line["analytic"] = weight
        line |= mean_over_steps("measured", [row["weight"] for row in here], steps)
        line |= mean_over_steps("residual", [row["residual"] for row in here if "residual" in row], steps)
        if total > 0:
            line |= {"share_prompts": batch[k] / batch.total(), "share_weight": batch[k] * weight / total}
        if norm:
            line["share_norm"] = sum(row["norm"] for row in here) / norm
        table.append(line)
    return table


PROBE = Probe(
    name="weights",
    question="How much does a prompt weigh in the update, by its accuracy: in theory, and by its gradient?",
    needs=("groups", "gradients"),
    shows=("deviation", "residual", "share_minority", "effective_share", "prompts"),
    measure=measure,
    settings=("probe.gradients_every=1", "probe.gradient_prompts=64"),
)
