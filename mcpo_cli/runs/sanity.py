"""Metrics of recorded rows: the metrics of one evaluation, and limits on the metrics of steps.

A run that exceeds a limit continues; the user is warned.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from mcpo_cli.records import StepRow


@dataclass(frozen=True)
class Limit:
    """An upper limit on a metric."""

    metric: str
    most: float
    says: str
    """The message if `metric` exceeds `most`."""
    of_rollouts: bool = False
    """True if `metric` is a share of a step's rollouts, which may exceed `most` by chance if these are few."""

    def exceeded(self, row: StepRow) -> bool:
        """True if a step is above the limit by more than CHANCE standard errors, computed for a share at the limit."""
        error, rollouts = 0.0, row["metrics"].get("cost/rollouts", 0.0) / row["step"]
        if self.of_rollouts and rollouts:
            error = math.sqrt(self.most * (1 - self.most) / rollouts)
        return row["metrics"][self.metric] > self.most + CHANCE * error


CHANCE = 3.0
"""Standard errors by which a share must exceed its limit: at scale=smoke with its 32 rollouts per step, by 0.23."""


LIMITS = (
    # Excess over chance, see `measure.sanity`. Not 0: if one response has nearly all probability, unsampled rare
    # responses show up as an excess of their own probability.
    Limit(
        "sanity/duplicates_excess",
        0.02,
        "rollouts of a prompt equal each other more often than independent draws would; do their seeds repeat?",
    ),
    # Our choice: beyond it accuracy depends on the length limit as much as on the policy. Base policies of the toy
    # tasks, which never saw the longest prompts, stay below 0.2.
    Limit(
        "sanity/truncated",
        0.25,
        "many responses are cut; do they never end, or is train.max_response too small?",
        of_rollouts=True,
    ),
    # Our choice: beyond it next to no prompt has a gradient.
    Limit(
        "mastery/all_wrong",
        0.99,
        "no rollout is correct, so there is nothing to learn from; `mcpo runs samples` shows them: do they mark the "
        "answer as the grader expects, is train.max_response long enough, are the problems too hard?",
    ),
    # Its exp is NeMo RL's token_mult_prob_error; a value above 1.05 points to a faulty engine
    # (https://github.com/NVIDIA-NeMo/RL, docs/guides/dtensor-tp-accuracy.md). vLLM against an unquantised trainer in
    # bfloat16 shows about 0.011 (https://github.com/vllm-project/vime/issues/64), the local engine 1e-6.
    Limit(
        "sanity/logp_difference",
        0.05,
        "sampler and trainer disagree on log-probabilities: does the sampler use the trained weights?",
    ),
    # Our choice: a tenth of the paper's delta. It is 0 where old log-probabilities are packed as in the update.
    Limit(
        "sanity/noise_floor",
        0.001,
        "the same weights give other log-probabilities the second time: part of what the hinge sees is rounding, which "
        "cluster.fused_kernels=true reduces",
    ),
    # The paper's delta: above it, rounding alone puts most tokens outside.
    Limit(
        "sanity/rounding_after_step",
        0.01,
        "rounding to bfloat16 changes log-probabilities over a gradient step by more than the paper's method.delta: "
        "the hinge mostly sees noise; a larger method.delta avoids that, or compute.dtype=float32 with backend=local",
    ),
    # Our choice: half of the trained groups. A group whose rewards are all equal gets the penalty's gradient and no
    # other (https://github.com/huggingface/trl/issues/7068).
    Limit(
        "kl/without_advantage",
        0.5,
        "most tokens that the KL to the reference acts on have no advantage, so the step mostly leads back to it: "
        "method.without_advantage=free leaves them out",
    ),
    # Our choice: one correct response in twenty. A few problems are easy enough to need no reasoning.
    Limit(
        "sanity/bare_right",
        0.05,
        "correct answers come without reasoning: easy problems, guesses, or a grader that is fooled?",
    ),
)


class Warned(TypedDict):
    """A limit that a run exceeded."""

    metric: str
    limit: float
    says: str
    steps: int
    """Number of steps that exceeded the limit."""
    first_step: int
    worst_step: int
    worst: float
    """The metric at `worst_step`."""


def warnings(rows: Iterable[StepRow]) -> list[Warned]:
    """The limits that `rows`, in the order of their steps, exceed."""
    steps, exceeded = list(rows), list[Warned]()
    for limit in LIMITS:
        hits = [row for row in steps if limit.metric in row["metrics"] and limit.exceeded(row)]
        if above := {row["step"]: row["metrics"][limit.metric] for row in hits}:
            worst_step = max(above, key=lambda step: above[step])
            exceeded.append(
                Warned(
                    metric=limit.metric,
                    limit=limit.most,
                    says=limit.says,
                    steps=len(above),
                    first_step=min(above),
                    worst_step=worst_step,
                    worst=above[worst_step],
                )
            )
    return exceeded


def line(warned: Warned) -> str:
    """The warning as one line of text."""
    value = f"{warned['metric']} {warned['worst']:.3g} at step {warned['worst_step']}, above {warned['limit']:g}"
    return f"{warned['says']} ({value})"


def evaluated(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of one evaluation, from its `EvalRow`s.

    `eval/<tier>/pass_at_1`: the mean of c / n over the tier's problems.
    `eval/<tier>/infra_errors`: the share of samples that could not be graded; absent if all were graded.
    """
    metrics = {}
    for tier, problems in by_tier(rows).items():
        metrics[f"eval/{tier}/pass_at_1"] = math.fsum(row["c"] / row["n"] for row in problems) / len(problems)
        if ungraded := sum(row.get("ungraded", 0) for row in problems):
            metrics[f"eval/{tier}/infra_errors"] = ungraded / (ungraded + sum(row["n"] for row in problems))
    return metrics


def accuracy(rows: Sequence[Mapping[str, Any]]) -> float:
    """Mean accuracy over the problems of one evaluation's rows; 0 without any."""
    return float(sum(row["c"] / row["n"] for row in rows) / max(len(rows), 1))


def by_tier(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Tier -> its rows."""
    tiers: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        tiers[row["tier"]].append(row)
    return tiers
