"""Sorts of sums, one after the other: does a policy keep the first while it learns the next?"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from mcpo_cli.data.base import Problem
from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import Limits
from mcpo_cli.tasks.sums import Sums


@dataclass(frozen=True)
class SumsInTurn(Sums):
    """Sorts of sums, one after the other, each with a pool of `pool` problems that return.

    The stream has `change_every` problems of each sort in turn and stays with the last one. From the second turn on,
    every `again`-th problem is of an earlier sort.
    """

    name = "sums_in_turn"

    sorts: tuple[str, ...] = identity(("2+1", "2-1"))
    """Sorts of sums in their order, as in `task=sums`."""
    change_every: int = identity(960, ge=1)
    """Problems until the next sort: without a filter, `train.prompts` times the global steps of a turn."""
    again: int = identity(10, ge=2)
    """From the second turn on, every `again`-th problem is of an earlier sort."""

    @property
    def title(self) -> str:
        return f"sums of the sorts {', then '.join(self.sorts)}"

    def sort_at(self, position: int) -> str:
        """The sort of the problem at `position` of the stream."""
        turn = min(position // self.change_every, len(self.sorts) - 1)
        earlier = turn and position % self.again == 0
        return self.sorts[position // self.again % turn if earlier else turn]

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`."""
        sorts = [self.sort_at(position) for position in range(start, start + count)]
        streams = {sort: self._alone(sort).training(seed, start, count) for sort in set(sorts)}
        return [streams[sort][index] for index, sort in enumerate(sorts)]

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        """See `Task`."""
        yield from super().contradictions(train)
        if self.shares:
            yield "task.shares has no effect: task=sums_in_turn has one sort after the other", "task.shares=[]"

    def _alone(self, sort: str) -> Sums:
        """The task that has this sort alone."""
        options = {field.name: getattr(self, field.name) for field in fields(Sums)}
        return Sums(**options | {"sorts": (sort,)})
