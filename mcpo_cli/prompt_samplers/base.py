"""The contract of a sampler: it chooses the prompts of a global step and the groups to train on, and keeps a state.

The training stream of a run is an endless row of problems, addressed by position. A step asks for prompts round by
round (`draw`) until its batch is full, then reports the results (`after`):

    Request, State -> draw -> Draw (positions)      one round: the problems there get a group of rollouts each
    Group          -> keeps                         True if a finished group may be trained on
    Finished, State -> after -> State               all groups of the step, including dropped ones

All of these are pure functions: a resumed run calls them again and must draw the same prompts. Their only source of
chance is `Request.seed`. A state is columns of numbers by name, lists of ints or of floats. Checkpoints hold them as
int64 and float64, which preserves them exactly. They are not tensors because no shipped rule needs one, so planning
does not import torch or NumPy.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Protocol

State = Mapping[str, Sequence[float]]
"""Memory of a sampler from step to step: columns of numbers by name."""


class Stream(Protocol):
    """The training stream of a run, as far as samplers see it."""

    @property
    def distinct(self) -> int:
        """Number n of different problems, each of which comes once in every n positions; 0 if it is endless."""

    def numbers(self, positions: Sequence[int]) -> list[int]:
        """The number of the problem at each position, which is the same at all positions of a problem."""


@dataclass(frozen=True)
class Run:
    """The settings of a run that a sampler's options may contradict."""

    prompts: int
    """Prompts of a batch (`train.prompts`)."""
    rollouts: int
    """Rollouts of a group (`train.rollouts`), or their mean."""
    repeats: bool
    """True if training problems come again (`tasks.Task.repeats`)."""


@dataclass(frozen=True)
class Group:
    """A prompt with its finished rollouts."""

    position: int
    number: int
    p: float
    """Share of correct rollouts."""
    informative: bool
    """True if the method keeps it under dynamic sampling (`Method.keeps`): for most methods, 0 < p < 1."""
    round: int
    """The round of its global step, from 0."""
    kept: bool = True
    """True if the sampler keeps it. The first `train.prompts` that are kept make the batch."""
    _: KW_ONLY
    rollouts: int
    """Number of its rollouts."""


@dataclass(frozen=True)
class Request:
    """A round of a global step, before its rollouts."""

    step: int
    """Global step, from 1."""
    round: int
    """From 0; a later round exists only if a sampler that `filters` threw groups away."""
    prompts: int
    """Prompts of a batch."""
    budget: int
    """Maximum positions that this round may draw: a step samples at most `prompts` x (1 + `train.max_refills`)."""
    cursor: int
    """The first position of the stream that the run has not reached yet."""
    stream: Stream
    groups: Sequence[Group]
    """Finished groups of earlier rounds of this step."""
    seed: int
    """The seed of this round's random stream."""
    _: KW_ONLY
    rollouts: int
    """Rollouts of each group, or their mean (`train.rollouts`)."""

    @property
    def lacking(self) -> int:
        """Groups that the batch still needs."""
        return self.prompts - sum(group.kept for group in self.groups)

    @property
    def rng(self) -> random.Random:
        """The random stream from its beginning."""
        return random.Random(self.seed)

    def fresh(self, count: int) -> range:
        """The next `count` positions of the stream."""
        return range(self.cursor, self.cursor + count)


@dataclass(frozen=True)
class Draw:
    """The answer to a request."""

    positions: tuple[int, ...]
    """Positions in the stream of the problems to sample, in the order of the batch, all different within a step.

    A sampler without a filter draws `Request.prompts`, in one round.
    """
    cursor: int
    """The position at which the stream continues."""
    rollouts: tuple[int, ...] | None = None
    """Rollouts of each position, two or more, `Request.rollouts` on average; None for that number at each position.

    Only for a sampler with `uneven_groups`.
    """

    @classmethod
    def of_fresh(cls, request: Request, count: int) -> "Draw":
        """The next `count` problems of the stream."""
        return cls(tuple(request.fresh(count)), request.cursor + count)

    @classmethod
    def with_fresh(cls, request: Request, again: Mapping[int, int]) -> "Draw":
        """A batch: the problems `again` (number: position), then the next problems of the stream that are not in it."""
        count, cursor, fresh = request.prompts - len(again), request.cursor, list[int]()
        while len(fresh) < count:
            positions = range(cursor, cursor + count - len(fresh))
            numbers = request.stream.numbers(positions)
            fresh += [position for position, number in zip(positions, numbers, strict=True) if number not in again]
            cursor = positions.stop
        return cls((*again.values(), *fresh), cursor)


@dataclass(frozen=True)
class Finished:
    """A global step, once its batch is full."""

    step: int
    groups: Sequence[Group]
    """In the order in which they were drawn, including groups that were thrown away."""


@dataclass(frozen=True)
class Sampler(ABC):
    """A sampler is a frozen dataclass of its options, which are `sampler.*` of the command line."""

    name: ClassVar[str]
    filters: ClassVar[bool] = False
    """True if it drops finished groups and samples others instead, as `method.dynamic_sampling=true`."""
    by_outcome: ClassVar[bool] = True
    """True if its choices depend on which answers were correct."""
    needs_repeats: ClassVar[bool] = False
    """True if it has no effect unless problems come again."""
    uneven_groups: ClassVar[bool] = False
    """True if it gives prompts different numbers of rollouts; such a sampler cannot filter.

    It needs `backend=local` and a method with `Method.uneven_groups`.
    """

    @abstractmethod
    def draw(self, request: Request, state: State) -> Draw:
        """The positions of one round. Before the first step the state is empty."""

    def keeps(self, group: Group) -> bool:
        """True if `group` may be trained on. Called only if the sampler `filters`."""
        return group.informative

    def after(self, finished: Finished, state: State) -> State:
        """The state after a global step. Its names are the same after every step."""
        return state

    def contradictions(self, run: Run) -> Iterator[tuple[str, str]]:
        """A message and a fixing override for each way in which its options contradict each other or the run."""
        if self.needs_repeats and not run.repeats:
            yield (
                f"sampler={self.name} chooses among problems that come again; the task always draws fresh ones",
                f"task.pool={max(1024, 4 * run.prompts)}, or sampler=uniform",
            )
