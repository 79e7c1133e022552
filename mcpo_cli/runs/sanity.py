"""What a sound run should not show: limits on its steps' metrics. A run that passes one goes on; people are told."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from mcpo_cli.records import StepRow


@dataclass(frozen=True)
class Limit:
    """The most that `metric` may be at a step. says: what it means if it is more."""

    metric: str
    most: float
    says: str


LIMITS = (
    # Beyond chance, see `measure.sanity`. Not 0: where nearly all probability is on one response, rare ones that no
    # group happens to hold look like an excess of their own probability.
    Limit(
        "sanity/duplicates_excess",
        0.02,
        "rollouts of a prompt equal each other more often than independent draws would; do their seeds repeat?",
    ),
    # A choice: beyond it accuracy says as much about the length limit as about the policy. The toy tasks' base
    # policies, which never saw their longest prompts, stay below a fifth.
    Limit("sanity/truncated", 0.25, "many responses are cut; are they endless, or is train.max_response too small?"),
    # exp of it is NeMo RL's token_mult_prob_error, which above 1.05 points to a fault of an engine
    # (https://github.com/NVIDIA-NeMo/RL, docs/guides/dtensor-tp-accuracy.md). vLLM against an unquantised trainer in
    # bfloat16 shows about 0.011 (https://github.com/vllm-project/vime/issues/64), the local engine 1e-6.
    Limit(
        "sanity/logp_difference",
        0.05,
        "sampler and trainer disagree on log-probabilities: does the sampler have the weights that are trained?",
    ),
    # A choice: one right response in twenty. A few problems can be answered at a glance.
    Limit(
        "sanity/bare_right",
        0.05,
        "right answers come without reasoning: easy problems, guesses, or a grader that is fooled?",
    ),
)


class Warned(TypedDict):
    """A limit that a run passed: at `steps` steps, for the first time at `first_step`, most of all at `worst_step`."""

    metric: str
    limit: float
    says: str
    steps: int
    first_step: int
    worst_step: int
    worst: float


def warnings(rows: Iterable[StepRow]) -> list[Warned]:
    """The limits that `rows`, in the order of their steps, pass."""
    steps, found = list(rows), list[Warned]()
    for limit in LIMITS:
        values = {row["step"]: row["metrics"][limit.metric] for row in steps if limit.metric in row["metrics"]}
        if passed := {step: value for step, value in values.items() if value > limit.most}:
            worst = max(passed, key=lambda step: passed[step])
            found.append(
                Warned(
                    metric=limit.metric,
                    limit=limit.most,
                    says=limit.says,
                    steps=len(passed),
                    first_step=min(passed),
                    worst_step=worst,
                    worst=passed[worst],
                )
            )
    return found


def line(warned: Warned) -> str:
    """For people."""
    value = f"{warned['metric']} {warned['worst']:.3g} at step {warned['worst_step']}, above {warned['limit']:g}"
    return f"{warned['says']} ({value})"
