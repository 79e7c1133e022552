"""Checks of both backends that end a run: NaN or infinity, and an error in what a method returns.

Of a method's return values only types, shapes and finite advantages are checked, which takes almost no time;
`mcpo_cli/testing` checks everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import Method, Signals, State, Step, TokenBatch, TokenLoss

if TYPE_CHECKING:
    from torch import Tensor

    from mcpo_cli.backends.measure import MetricSums


class NotFinite(RunFailed):
    """Numbers of a run are NaN or infinite, so it yields no policy."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message, fix=fix or "a smaller train.lr, or a method whose loss has no division by 0")


@contextmanager
def at(when: str) -> Iterator[None]:
    """Puts `when`, such as a global step, before the message of a `NotFinite` that is raised inside."""
    try:
        yield
    except NotFinite as error:
        raise NotFinite(f"{when}: {error.message}", error.fix) from error


def check_mini_batch(step: int, number: int, sums: MetricSums) -> None:
    """Raise NotFinite if a loss or norm of gradient step `number` (from 1) of global step `step` is not finite."""
    broken_names = [
        name for name, (total, _) in sums.pairs.items() if name.startswith("train/") and not math.isfinite(total)
    ]
    if broken_names:
        raise NotFinite(f"step {step}, mini-batch {number}: NaN or infinite: {', '.join(broken_names)}")


def signals(method: Method, step: Step, state: State) -> tuple[Signals, State]:
    """What `Method.signals` returns, checked.

    Raises:
        RunFailed: it returned something else, or of another shape. NotFinite: an advantage is NaN or infinite.
    """
    # The annotation is a promise of the method's author, so it is checked.
    result: Any = method.signals(step, state)
    match result:
        case (Signals() as output, Mapping() as next_state):
            pass
        case _:
            raise _unexpected(method, "signals", _named(result), "(Signals, State)")
    PG, PGT = step.length_PG.shape, step.mask_PGT.shape
    _check_shape(method, "signals", "advantage", output.advantage, PGT if method.token_advantages else PG)
    _check_shape(method, "signals", "has_gradient_PG", output.has_gradient_PG, PG)
    if output.counts_PG is not None:
        _check_shape(method, "signals", "counts_PG", output.counts_PG, PG)
    for names, shape in ((method.columns, PG), (method.token_columns, PGT)):
        for name in names:
            if name in output.columns:
                _check_shape(method, "signals", f"the column {name}", output.columns[name], shape)
    if not output.advantage[output.has_gradient_PG].isfinite().all():
        fix = f"mcpo components check method {method.name}"
        raise NotFinite(f"method={method.name}: an advantage is NaN or infinite", fix)
    return output, next_state


def token_loss(method: Method, batch: TokenBatch) -> TokenLoss:
    """`Method.token_loss`. Raises RunFailed if it returned something else, or a term of another shape."""
    loss: Any = method.token_loss(batch)
    if not isinstance(loss, TokenLoss) or not loss.terms:
        raise _unexpected(method, "token_loss", _named(loss), "a TokenLoss of one term or more")
    BT = batch.mask_BT.shape
    for term in loss.terms:
        _check_shape(method, "token_loss", f"value_BT of the term {term.name}", term.value_BT, BT)
        _check_shape(method, "token_loss", f"weight_B of the term {term.name}", term.weight_B, BT[:1])
    return loss


def _check_shape(method: Method, call: str, part: str, value: Tensor, shape: tuple[int, ...]) -> None:
    actual = getattr(value, "shape", None)
    if actual != shape:
        actual = "no tensor" if actual is None else f"shape {tuple(actual)}"
        raise _unexpected(method, call, f"{part} of {actual}", f"shape {tuple(shape)}")


def _named(value: object) -> str:
    """The type of a returned value, `None` for None, and the types of a tuple's items."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_named, value))})"
    return "None" if value is None else type(value).__name__


def _unexpected(method: Method, call: str, result: str, expected: str) -> RunFailed:
    return RunFailed(
        f"method={method.name}: {call} returned {result} instead of {expected}",
        fix=f"mcpo components check method {method.name}",
    )
