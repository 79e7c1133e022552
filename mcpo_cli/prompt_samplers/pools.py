"""Difficulty pools, as the curricula of prime-rl."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from mcpo_cli.prompt_samplers import table
from mcpo_cli.prompt_samplers.base import Draw, Finished, Request, Run, Sampler, State
from mcpo_cli.settings import identity


class Seen(NamedTuple):
    """A problem that was sampled."""

    p: float
    """Accuracy of its latest group."""


@dataclass(frozen=True)
class Pools(Sampler):
    """Difficulty pools: problems are drawn more or less often by the accuracy of their latest group.

    As `DifficultyPools` of prime-rl (`orchestrator/curriculum`, its source read, not executed; there is no paper). A
    problem is in the pool `hard` if its latest accuracy was at most `hard`, in `easy` if it was above `easy`, else in
    `normal`. A problem is chosen uniformly among all, and accepted with a probability that is proportional to the
    weight of its pool; one that was never rolled has weight 1, so no first pass over the problems is needed. Thresholds
    and weights are prime-rl's. Two differences: pools go by accuracy, not by mean reward, and no problem comes twice in
    a batch, where prime-rl's single draws may repeat one. Its filter of groups without a gradient is `refill` here.

    Checked: worked numbers, and frequencies against the weights (`tests/unit/test_samplers.py`).
    """

    name: ClassVar[str] = "pools"
    needs_repeats: ClassVar[bool] = True

    hard: float = identity(0.25, ge=0, le=1)
    """Largest accuracy of the hard pool."""
    easy: float = identity(0.75, ge=0, le=1)
    """Accuracy above which a problem is in the easy pool."""
    hard_weight: float = identity(0.2, gt=0)
    """Weight of a problem of the hard pool; one that was never rolled has 1."""
    normal_weight: float = identity(1.0, gt=0)
    """Weight of a problem of the pool between the two."""
    easy_weight: float = identity(0.2, gt=0)
    """Weight of a problem of the easy pool."""

    def weight(self, p: float | None) -> float:
        """The weight of a problem with latest accuracy `p`, None before its first rollouts."""
        if p is None:
            return 1.0
        return self.hard_weight if p <= self.hard else self.normal_weight if p <= self.easy else self.easy_weight

    def draw(self, request: Request, state: State) -> Draw:
        rows, rng = table.read(state, Seen), request.rng
        ceiling = max(1.0, self.hard_weight, self.normal_weight, self.easy_weight)
        # The first epoch has each problem once.
        positions: dict[int, None] = {}
        while len(positions) < request.prompts:
            position = rng.randrange(request.stream.distinct)
            (number,) = request.stream.numbers([position])
            is_accepted = rng.random() * ceiling < self.weight(rows[number].p if number in rows else None)
            if is_accepted:
                positions[position] = None
        return Draw(tuple(positions), request.cursor)

    def after(self, finished: Finished, state: State) -> State:
        rows = table.read(state, Seen)
        return table.write(rows | {group.number: Seen(group.p) for group in finished.groups}, Seen)

    def contradictions(self, run: Run) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(run)
        if self.hard > self.easy:
            yield (
                f"sampler.hard={self.hard:g} is larger than sampler.easy={self.easy:g}",
                f"sampler.hard={self.easy:g}",
            )
