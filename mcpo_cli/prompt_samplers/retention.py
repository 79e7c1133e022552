"""Samplers that repeat mastered prompts to keep them mastered: review on a schedule, and replay at random.

A prompt is mastered when all rollouts of its group were correct. Both take at most a share of each batch, in place of
fresh prompts: a step samples as many rollouts as without them. The replaced fresh prompts are not lost: the stream
continues where it stopped.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from mcpo_cli.prompt_samplers import table
from mcpo_cli.prompt_samplers.base import Draw, Finished, Request, Sampler, State
from mcpo_cli.settings import identity


class Mastered(NamedTuple):
    """A prompt that was mastered once."""

    position: int
    """Its position in the stream."""
    due: int
    """The global step from which on it is to be reviewed."""
    missed: int
    """Reviews in a row that found it regressed; 0 while it is mastered."""


class Solved(NamedTuple):
    """A prompt that was solved once."""

    position: int


@dataclass(frozen=True)
class Review(Sampler):
    """Review of mastered prompts, after Correct-Set Turnover in RLVR (arXiv 2606.03087).

    What is known of the paper here is its abstract: it tracks mastered prompts and periodically reintroduces them by
    replacing part of a batch before its rollouts, at no extra rollouts, because the cost of restoring a regressed
    prompt grows with the delay of its review (the repair window). Its full text was not read and no code was found, so
    the numbers and the schedule are ours:

    - A prompt that is mastered at step t is due for review from step t + `interval` on.
    - A batch takes up to `share` of its prompts from the due prompts, the longest due first. Of equals, regressed
      prompts come first, then the prompts that were met first.
    - A review that finds a prompt mastered makes it due again `interval` steps later. A review that finds it regressed
      opens the repair window: it is due again in the next step, until it is mastered or was missed `window` times in a
      row. Then it is forgotten about until the stream brings it and it is mastered again.

    Checked: worked numbers (`tests/unit/test_samplers.py`).
    """

    name: ClassVar[str] = "review"

    share: float = identity(0.25, ge=0, lt=1)
    """Most of a batch that reviewed prompts take, as a share of `train.prompts`."""
    interval: int = identity(4, ge=1)
    """Global steps from a prompt's mastery to its next review."""
    window: int = identity(4, ge=1)
    """Reviews in a row that may find a prompt regressed, one a step, before it is given up."""

    def draw(self, request: Request, state: State) -> Draw:
        items = [item for item in table.read(state, Mastered).items() if item[1].due <= request.step]
        # The sort is stable: among equals, earlier ones come first.
        items.sort(key=lambda item: (item[1].due, not item[1].missed))
        selection = items[: int(self.share * request.prompts)]
        return Draw.with_fresh(request, {number: row.position for number, row in selection})

    def after(self, finished: Finished, state: State) -> State:
        rows = table.read(state, Mastered)
        for group in finished.groups:
            if group.p == 1:
                rows[group.number] = Mastered(group.position, finished.step + self.interval, 0)
            elif (row := rows.pop(group.number, None)) and row.missed + 1 < self.window:
                rows[group.number] = Mastered(group.position, finished.step + 1, row.missed + 1)
        return table.write(rows, Mastered)


@dataclass(frozen=True)
class Replay(Sampler):
    """Replay of solved prompts: a share of each batch is drawn at random from all prompts that were solved before.

    The baseline that review on a schedule is to be compared with (2606.03087 compares with replay; its full text was
    not read): the same prompts and the same share, without a schedule. A prompt is solved, for good, when at least
    `solved` of its group was correct. Until enough prompts are solved, fresh prompts fill the batch.

    Prompt Replay (arXiv 2603.21177, abstract) is another rule: prompts near p = 0.5, with a cooldown.

    Checked: worked numbers (`tests/unit/test_samplers.py`).
    """

    name: ClassVar[str] = "replay"

    share: float = identity(0.25, ge=0, lt=1)
    """Share of a batch that solved prompts take, of `train.prompts`."""
    solved: float = identity(1.0, gt=0, le=1)
    """Least share of correct rollouts at which a prompt counts as solved; 1 is mastered."""

    def draw(self, request: Request, state: State) -> Draw:
        rows = table.read(state, Solved)
        count = min(int(self.share * request.prompts), len(rows))
        numbers = request.rng.sample(list(rows), count)
        return Draw.with_fresh(request, {number: rows[number].position for number in numbers})

    def after(self, finished: Finished, state: State) -> State:
        rows = table.read(state, Solved)
        new_rows = {group.number: Solved(group.position) for group in finished.groups if group.p >= self.solved}
        return table.write(rows | new_rows, Solved)
