"""What a method says of itself: the text of its module, the backends that train it, its weight curve."""

import inspect
import math
import sys

from mcpo_cli.methods.base import Method


def text(method: type[Method]) -> str:
    """The docstring of the method's module: source, formula, defaults, edge cases, disagreements."""
    return inspect.getdoc(sys.modules[method.__module__]) or ""


def backends(method: Method) -> dict[str, str]:
    """Each backend with what it asks of this method."""
    whole = "one mini-batch a step (train.mini_batch=train.prompts)" if method.prepares else ""
    return {"local": "", "verl": whole}


def curve(method: Method, rollouts: int) -> list[tuple[float, float]]:
    """(p, W(p)) for each accuracy that a group of `rollouts` can have; empty for a method without a curve."""
    points = [right / rollouts for right in range(rollouts + 1)]
    weights = [float(method.query_weight(p, rollouts)) for p in points]
    return [] if any(map(math.isnan, weights)) else list(zip(points, weights, strict=True))
