"""NaN and infinity end a run: they are neither written to weights nor recorded as a result."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from mcpo_cli.backends.measure import Sums
from mcpo_cli.errors import RunFailed


class NotFinite(RunFailed):
    """Numbers of a run are NaN or infinite, so no policy comes out of it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, fix="a smaller train.lr, or a method whose loss has no division by 0")


@contextmanager
def at(place: str) -> Iterator[None]:
    """Puts `place`, such as a global step, before the message of a `NotFinite` that is raised inside."""
    try:
        yield
    except NotFinite as error:
        raise NotFinite(f"{place}: {error.message}") from error


def check_mini_batch(step: int, number: int, sums: Sums) -> None:
    """Raise NotFinite if a loss or the gradient norm of gradient step `number` (from 1) of global step `step` is."""
    broken = [name for name, (total, _) in sums.pairs.items() if name.startswith("train/") and not math.isfinite(total)]
    if broken:
        raise NotFinite(f"step {step}, mini-batch {number}: NaN or infinite: {', '.join(broken)}")
