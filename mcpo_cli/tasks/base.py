"""What a task is to the rest: problems with a gold answer, a training stream, held-out tiers."""

import random
from collections.abc import Sequence
from typing import Protocol

from mcpo_cli.data.base import Problem
from mcpo_cli.seeds import stream


class Benchmark(Protocol):
    """A source of training problems and held-out tiers that share none."""

    vocabulary: tuple[str, ...]

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """Problems `start` to `start + count` of the endless training stream of `seed`."""
        ...

    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        """Problems of warm-up step `step`."""
        ...

    def tiers(self, count: int) -> dict[str, list[Problem]]:
        """`count` held-out problems of each tier, the same for every seed."""
        ...


def answer(response: str) -> str | None:
    """What a response to a chain answers: its last word, the value after all operators; None of an empty one."""
    words = response.removesuffix("<eos>").split()
    return words[-1] if words else None


def correct(response: str, problem: Problem) -> bool:
    """Whether the whole trace equals the gold answer; white space between tokens does not count."""
    return response.split() == problem.gold.split()


def from_pool(pool: Sequence[Problem], seed: int, start: int, count: int) -> list[Problem]:
    """Problems `start` to `start + count` of an endless stream over `pool`, each epoch in an order of its own."""
    epochs = {i // len(pool) for i in range(start, start + count)}
    order = {epoch: random.Random(stream(seed, "data", epoch)).sample(pool, len(pool)) for epoch in epochs}
    return [order[i // len(pool)][i % len(pool)] for i in range(start, start + count)]
