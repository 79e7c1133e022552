"""GRESO: prompts whose last groups had no variance are skipped before they are sampled."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from mcpo_cli.prompt_samplers import table
from mcpo_cli.prompt_samplers.base import Draw, Finished, Request, Sampler, State
from mcpo_cli.settings import identity

LEAST_KEPT = 0.01
"""No problem is rolled with a lower probability, however often it had no variance (released code)."""
LOWEST, HIGHEST = 0.05, 0.95
"""Bounds of the exploration probabilities (released code: `min_p`, `max_p`)."""
SHARE_EASY = 1 / 3
"""Share of the target that may be all correct; the rest may be all wrong, as these change more often (their code)."""
MARGIN = 1.25
"""A later round asks for this multiple of its expected need (released code)."""
SMALLEST = 0.25
"""Minimum size of a later round, in batches: the released scripts have 64 of 256 prompts."""
EXPLORE = "explore"
"""The column of the state with the exploration probabilities of all correct and of all wrong prompts."""


class Streak(NamedTuple):
    """The latest groups of a problem in a row that were all correct, or all wrong; 0 and 0 if the last was neither."""

    right: int
    wrong: int

    def then(self, p: float) -> "Streak":
        """The streak after another group, of accuracy `p`."""
        return Streak(self.right + 1 if p == 1 else 0, self.wrong + 1 if p == 0 else 0)


@dataclass(frozen=True)
class Greso(Sampler):
    """GRESO (arXiv 2506.02177): the filter of DAPO, and before it a filter by chance that costs no rollouts.

    Written after the released code (Infini-AI-Lab/GRESO, `ttis/presampling_selector.py` and `ppo/ray_trainer.py`, read,
    not executed) and the paper's abstract:

    - A problem of the stream whose last z groups were all correct is skipped with probability 1 - e^z, and likewise one
      whose last z groups were all wrong. e is the exploration probability of its kind, at first `explore`. At least
      one in a hundred is rolled.
    - After each step e falls by `change` if the share of all correct (all wrong) groups among the sampled groups was at
      least a third (two thirds) of `target`, else it rises by as much, within 0.05 and 0.95. It first does so in the
      step that meets a problem again; the released code waits for the second epoch.
    - The first round samples `first` batches of prompts, a later one 1.25 times what it expects to need by the share
      of groups without variance in the round before, between a quarter of a batch and `first` batches.

    Differences from the released code. It counts a mean reward of at least 0.98 as all correct and of at most 0.11 as
    all wrong, because an answer's form is rewarded with 0.1; here these are p = 1 and p = 0. It trains on an incomplete
    batch when a last small round did not fill it; here rounds go on. No problem is rolled twice in a step.

    Checked: worked numbers (`tests/unit/test_samplers.py`).
    """

    name: ClassVar[str] = "greso"
    filters: ClassVar[bool] = True
    needs_repeats: ClassVar[bool] = True

    explore: float = identity(0.5, ge=LOWEST, le=HIGHEST)
    """Probability, at first, of rolling a problem whose last group had no variance."""
    target: float = identity(0.25, ge=0, le=1)
    """Share of sampled groups without variance that the exploration probabilities aim at."""
    change: float = identity(0.01, ge=0, le=1)
    """Amount by which an exploration probability changes after a step."""
    first: float = identity(1.5, ge=1)
    """Prompts of the first round, in batches."""

    def draw(self, request: Request, state: State) -> Draw:
        rows, rng, stream = table.read(state, Streak), request.rng, request.stream
        easy, hard = state.get(EXPLORE, (self.explore, self.explore))
        numbers = {group.number for group in request.groups}
        size = min(self._size(request), stream.distinct - len(numbers))
        cursor, positions = request.cursor, list[int]()
        while len(positions) < size:
            (number,) = stream.numbers([cursor])
            streak = rows.get(number, Streak(0, 0))
            probability = max(easy**streak.right * hard**streak.wrong, LEAST_KEPT)
            if number not in numbers and rng.random() < probability:
                positions.append(cursor)
                numbers.add(number)
            cursor += 1
        return Draw(tuple(positions), cursor)

    def _size(self, request: Request) -> int:
        """Prompts of the round."""
        size = int(self.first * request.prompts)
        round_groups = [group for group in request.groups if group.round == request.round - 1]
        if mixed_count := sum(0 < group.p < 1 for group in round_groups):
            need = int(request.lacking * len(round_groups) / mixed_count * MARGIN)
            size = max(int(SMALLEST * request.prompts), 1, min(need, size))
        return min(size, request.budget)

    def after(self, finished: Finished, state: State) -> State:
        rows, groups = table.read(state, Streak), finished.groups
        explore = list(state.get(EXPLORE, (self.explore, self.explore)))
        if any(group.number in rows for group in groups):
            target_shares = SHARE_EASY, 1 - SHARE_EASY
            for kind, p in enumerate((1.0, 0.0)):
                share = sum(group.p == p for group in groups) / len(groups)
                value = explore[kind] + (-self.change if share >= target_shares[kind] * self.target else self.change)
                explore[kind] = min(max(value, LOWEST), HIGHEST)
        for group in groups:
            rows[group.number] = rows.get(group.number, Streak(0, 0)).then(group.p)
        return {**table.write(rows, Streak), EXPLORE: explore}
