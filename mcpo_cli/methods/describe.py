"""Description of a method: the text of its module, the backends that train it, its weight curve."""

import inspect
import math
import sys

from mcpo_cli.methods.base import AdvancedMethod, Method


def text(method: type[Method]) -> str:
    """Source, formula, defaults, edge cases, disagreements: the docstring of the class, or of its module if longer."""
    return max((inspect.getdoc(one) or "" for one in (method, sys.modules[method.__module__])), key=len)


def summary(method: type[Method]) -> str:
    """The first paragraph of `text` in one line."""
    return " ".join(text(method).partition("\n\n")[0].split())


def backends(method: Method) -> dict[str, str]:
    """Each backend with what it asks of this method."""
    if "reference_policy" in method.needs:
        return {"local": "", "verl": "refused: it keeps no reference policy yet"}
    if "collision" in method.needs:
        return {"local": "", "verl": "refused: it does not pass on squared probabilities"}
    prepares = isinstance(method, AdvancedMethod) and method.prepares
    return {"local": "", "verl": "one mini-batch a step (train.mini_batch=train.prompts)" if prepares else ""}


def curve(method: Method, rollouts: int) -> list[tuple[float, float]]:
    """(p, W(p)) for each accuracy that a group of `rollouts` can have; empty for a method without a curve."""
    points = [right / rollouts for right in range(rollouts + 1)]
    weights = [float(method.query_weight(p, rollouts)) for p in points]
    return [] if any(map(math.isnan, weights)) else list(zip(points, weights, strict=True))
