"""Tasks that draw their problems at random: training streams, a pool, and held-out tiers separate from both."""

import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from mcpo_cli.data.base import HELD_OUT_SHARE, Problem, held_out
from mcpo_cli.errors import no_room
from mcpo_cli.seeds import stream
from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import ClosedTask, GeneratedTask, Limits

HELD_OUT_RULE = f"a problem is held out if its text hashes to 0 modulo {HELD_OUT_SHARE}, and only then"
PATIENCE = 20_000
"""Draws in a row without a problem after which `DrawnTask` reports that its options allow none; without a new problem,
HELD_OUT_SHARE times as many."""


@dataclass(frozen=True)
class DrawnTask(GeneratedTask):
    """A task that draws each problem at random.

    A subclass draws one problem (`draw`, `draw_of_tier`). This class makes streams, pool and tiers from it, and keeps
    held-out problems out of training.
    """

    held_out_rule = HELD_OUT_RULE

    pool: int = identity(0, ge=0, le=8192)
    """Number of different training problems, repeated in each epoch; 0 always draws fresh ones."""

    @abstractmethod
    def draw(self, rng: random.Random) -> Problem:
        """A problem as training has them, held out or not."""

    @abstractmethod
    def draw_of_tier(self, rng: random.Random, tier: str) -> Problem:
        """A problem of `tier`, held out or not."""

    def every(self, tier: str) -> Iterator[Problem] | None:
        """All problems of `tier`, held out or not, each once; None if the task cannot enumerate them.

        A tier of an enumerable task has all existing problems, if these are fewer than requested.
        """
        return None

    def tier_stream(self, tier: str) -> str:
        """The seed of the random stream that draws `tier`."""
        return tier

    @property
    def distinct_problems(self) -> int:
        return self.pool

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`; also checks that the pool fills a batch."""
        yield from super().contradictions(train)
        if 0 < self.pool < train.prompts:
            yield (
                f"task.pool={self.pool} holds fewer prompts than one batch (train.prompts={train.prompts})",
                f"task.pool={train.prompts}  (or 0: fresh prompts)",
            )

    def check(self) -> None:
        """See `Task`; also raises ConfigError if fewer training problems exist than the pool has."""
        super().check()
        self.training(0, 0, 1)

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`; fresh problems, or the pool epoch by epoch.

        Raises:
            ConfigError: fewer training problems exist than `pool`.
        """
        if self.pool:
            rng = random.Random(stream(seed, "pool"))
            pool = self._distinct(self.draw, rng, self.pool, "task.pool", "training problems")
            return from_pool(pool, seed, start, count)
        return [
            next(self._drawn(self.draw, random.Random(stream(seed, "data", i)), held=False))
            for i in range(start, start + count)
        ]

    def tiers(self, count: int) -> dict[str, list[Problem]]:
        """See `Problems`.

        Raises:
            ConfigError: a tier that the task cannot enumerate has fewer than `count` held-out problems.
        """
        return {tier: self._tier(tier, count) for tier in self.tier_names}

    def tier_sizes(self, count: int) -> dict[str, int]:
        """See `Task`; an enumerable tier has at most all of its held-out problems."""
        return {tier: count if (pool := self._held_out(tier, count)) is None else len(pool) for tier in self.tier_names}

    def holds_out(self, problem: Problem) -> bool:
        """True if `problem` is evaluated and never trained on, which depends only on its text."""
        return held_out(problem)

    def _drawn(self, draw: Callable[[random.Random], Problem], rng: random.Random, *, held: bool) -> Iterator[Problem]:
        """Endless problems of `draw`: only held-out problems, or only the others.

        Raises:
            ConfigError: PATIENCE draws in a row had no such problem.
        """
        missed = 0
        while missed < PATIENCE:
            problem = draw(rng)
            if self.holds_out(problem) == held:
                missed = 0
                yield problem
            else:
                missed += 1
        kind = "held-out problems" if held else "training problems"
        raise no_room(f"the options of the task allow no {kind}", fix="mcpo help task")

    def _held_out(self, tier: str, count: int) -> list[Problem] | None:
        """The first `count` held-out problems of an enumerable tier, or all if there are fewer; otherwise None."""
        problems = self.every(tier)
        return None if problems is None else list(islice(filter(self.holds_out, problems), count))

    def _tier(self, tier: str, count: int) -> list[Problem]:
        problems = self._held_out(tier, count + 1)
        if problems is not None and len(problems) <= count:
            return problems
        draw, rng = partial(self.draw_of_tier, tier=tier), random.Random(self.tier_stream(tier))
        return self._distinct(draw, rng, count, "eval.problems", f"held-out problems of {tier}")

    def _distinct(
        self, draw: Callable[[random.Random], Problem], rng: random.Random, count: int, option: str, kind: str
    ) -> list[Problem]:
        """`count` problems of `draw` with different texts: held-out ones for a tier, otherwise training problems.

        Raises:
            ConfigError: too many draws in a row without a new problem; the message names the `option` that asks for
                `count`.
        """
        distinct, missed, is_held_out = dict[str, Problem](), 0, option == "eval.problems"
        while len(distinct) < count:
            problem = draw(rng)
            fits = self.holds_out(problem) == is_held_out
            missed = 0 if fits and problem.text not in distinct else missed + 1
            if fits:
                distinct[problem.text] = problem
            if missed == PATIENCE * (HELD_OUT_SHARE if distinct else 1):
                raise no_room(
                    f"{option}={count}: the options of the task allow only {len(distinct)} {kind}",
                    fix=f"{option}={len(distinct)}" if distinct else "mcpo help task",
                )
        return list(distinct.values())


@dataclass(frozen=True)
class RandomTask(DrawnTask, ClosedTask):
    """A closed task that draws each problem at random, from a space much larger than the part that a run sees.

    A subclass draws one problem and measures its difficulty; this class makes demonstrations and tiers from that.
    """

    @property
    @abstractmethod
    def tier_ranges(self) -> Mapping[str, tuple[int, int]]:
        """Minimum and maximum difficulty of each held-out tier."""

    @abstractmethod
    def draw_demonstration(self, rng: random.Random) -> Problem:
        """A problem of the warm-up, held out or not, with a whole response to imitate as its gold."""

    def difficulty(self, prompt: str) -> int | None:
        """The difficulty of a prompt, in units of `tier_ranges`; None if the task cannot tell."""
        return None

    def tier_of(self, prompt: str) -> str:
        level = self.difficulty(prompt)
        tiers = (tier for tier, (low, high) in self.tier_ranges.items() if level is not None and low <= level <= high)
        return next(tiers, "")

    @property
    def tier_names(self) -> tuple[str, ...]:
        return tuple(self.tier_ranges)

    def tier_stream(self, tier: str) -> str:
        """See `DrawnTask`; the tier's range is part of the seed."""
        low, high = self.tier_ranges[tier]
        return f"{tier}:{low}:{high}"

    def demonstrations(self, seed: int, step: int, count: int) -> list[Problem]:
        rng = random.Random(stream(seed, "warmup", step))
        return list(islice(self._drawn(self.draw_demonstration, rng, held=False), count))


def ordered(least: str, low: int, most: str, high: int) -> Iterator[tuple[str, str]]:
    """A contradiction if the option `task.<least>` is larger than `task.<most>`."""
    if low > high:
        yield f"task.{least}={low} is larger than task.{most}={high}", f"task.{least}={high}"


def from_pool(pool: Sequence[Problem], seed: int, start: int, count: int) -> list[Problem]:
    """Problems `start` to `start + count` of an endless stream over `pool`, reshuffled in each epoch."""
    epochs = {i // len(pool) for i in range(start, start + count)}
    order = {epoch: random.Random(stream(seed, "data", epoch)).sample(pool, len(pool)) for epoch in epochs}
    return [order[i // len(pool)][i % len(pool)] for i in range(start, start + count)]
