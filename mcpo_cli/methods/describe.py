"""Description of a method: the text of its module, the backends that train it, its weight curve."""

import inspect
import math
import sys

from mcpo_cli import settings
from mcpo_cli.methods.base import Method, Need, Step

DECIDES = ("advantages", "divisor", "signals")
"""Functions that decide a method's advantages: overriding one of them makes an inherited `query_weight` incorrect."""
OF_STEP: frozenset[Need] = frozenset({"logp", "entropy", "answers", "collision", "greedy_reward"})
"""Inputs of a whole step; the others are inputs of the loss."""
TOLERANCE = 1e-9
BAR = 40
"""Characters of the longest bar of a weight curve."""


def text(method: type[Method]) -> str:
    """Source, formula, defaults, edge cases, disagreements: the docstring of the class, or of its module if longer."""
    return max((settings.docstring(method), inspect.getdoc(sys.modules[method.__module__]) or ""), key=len)


def summary(method: type[Method]) -> str:
    """The first paragraph of `text` in one line."""
    return settings.summary(text(method))


def backends(method: Method) -> dict[str, str]:
    """Each backend with its requirements on this method."""
    local = "one more rollout a prompt" if "greedy_reward" in method.needs else ""
    if reason := unfit_for_verl(method):
        return {"local": local, "verl": f"refused: {reason}"}
    return {"local": local, "verl": "one mini-batch a step (train.mini_batch=train.prompts)" if method.prepares else ""}


def unfit_for_verl(method: Method) -> str:
    """Why backend=verl cannot train the method, whatever the other settings; empty if it can."""
    if "collision" in method.needs:
        return "it needs squared probabilities, which verl does not pass on"
    if "greedy_reward" in method.needs:
        return "it needs a greedy response to each prompt, and verl samples all responses of a step at one temperature"
    if method.prepares and "previous_policy" in method.needs:
        return (
            "it evaluates each mini-batch before its gradient and needs the policy before the last one there, too "
            "(`previous_policy`); verl has it during the gradient only"
        )
    return ""


def curve(method: Method, rollouts: int) -> list[tuple[float, float]]:
    """(p, W(p)) for each accuracy that a group of `rollouts` can have; empty for a method without a curve.

    Weights come from `query_weight`, or from the advantages if the method changes these and not `query_weight`.
    """
    points = [right / rollouts for right in range(rollouts + 1)]
    weights = [float(method.query_weight(p, rollouts)) for p in points]
    if _is_outdated(type(method)) and not any(map(math.isnan, weights)):
        weights = _measured(method, rollouts)
    return [] if any(map(math.isnan, weights)) else list(zip(points, weights, strict=True))


def bars(points: list[tuple[float, float]]) -> list[str]:
    """A curve as lines of text: accuracy, weight, and a bar whose longest has BAR characters."""
    peak = max(weight for _, weight in points) or 1
    return [f"{p:7.4f} {weight:9.4f} {'#' * round(BAR * weight / peak)}".rstrip() for p, weight in points]


def _is_outdated(method: type[Method]) -> bool:
    """True if a subclass of the class that defines `query_weight` decides the advantages."""

    def depth(name: str) -> int:
        return next((level for level, kind in enumerate(method.__mro__) if name in vars(kind)), len(method.__mro__))

    return any(depth(name) < depth("query_weight") for name in DECIDES)


def _measured(method: Method, rollouts: int) -> list[float]:
    """W = mean_i (c_i - p) A_i (Eq. 6) of groups of `rollouts` with 0 to all correct, for the rewards 0 and 1.

    NaN if advantages depend on more than that: on inputs that the method needs, or on the other groups of the batch.
    """
    import torch

    def weights(right: list[int]) -> list[float]:
        correct_PG = torch.arange(rollouts) < torch.tensor(right)[:, None]
        c_PG = correct_PG.double()
        length_PG = torch.ones(correct_PG.shape, dtype=torch.long)
        step = Step(c_PG, correct_PG, length_PG, torch.arange(len(right)), max_response=1)
        advantage_PG = method.signals(step, {})[0].advantage_PG
        weight_P = ((c_PG - c_PG.mean(-1, keepdim=True)) * advantage_PG).mean(-1)
        return [float(weight) for weight in weight_P]

    counts = range(rollouts + 1)
    if method.needs & OF_STEP:
        return [math.nan]
    batch_weights, single_weights = weights([*counts]), [weights([right])[0] for right in counts]
    return (
        batch_weights
        if torch.allclose(torch.tensor(batch_weights), torch.tensor(single_weights), atol=TOLERANCE)
        else [math.nan]
    )
