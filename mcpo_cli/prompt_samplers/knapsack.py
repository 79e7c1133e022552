"""Knapsack RL: the rollouts of a step go to the prompts where they are most likely to teach something."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import ClassVar, NamedTuple

from mcpo_cli.prompt_samplers import table
from mcpo_cli.prompt_samplers.base import Draw, Finished, Request, Run, Sampler, State
from mcpo_cli.settings import identity


class Evidence(NamedTuple):
    """The latest rollouts of a problem."""

    right: float = 0.0
    """The number of correct ones; a fraction if only a part of an older group still counts."""
    rollouts: int = 0

    @property
    def p(self) -> float:
        """Success rate."""
        return self.right / self.rollouts

    def then(self, right: int, rollouts: int, most: int) -> "Evidence":
        """The evidence with a later group added; older rollouts are scaled down so that the total is at most `most`."""
        old_rollouts = min(self.rollouts, max(most - rollouts, 0))
        return Evidence(self.right * old_rollouts / max(self.rollouts, 1) + right, old_rollouts + rollouts)


def gain(p: float, rollouts: int) -> float:
    """The value that a rollout after the first `rollouts` adds for a prompt with success rate `p`.

    The value is P(both outcomes occur) times InfoGain, (1 - p^N - (1 - p)^N) p (1 - p)^2.
    """
    return (p**rollouts * (1 - p) + (1 - p) ** rollouts * p) * p * (1 - p) ** 2


def give(counts: list[int], among: Sequence[int], budget: int, most: int, rank: Callable[[int], float]) -> int:
    """Give one rollout at a time to the lowest `rank` among `among`, up to `most` each; returns the rest of `budget`.

    Of equals the first gets it. If `rank` is minus a `gain`, the sum of values is maximal, because gains fall with N.
    """
    queue = [(rank(index), index) for index in among if counts[index] < most]
    heapify(queue)
    while queue and budget:
        _, index = queue[0]
        counts[index] += 1
        budget -= 1
        if counts[index] < most:
            heapreplace(queue, (rank(index), index))
        else:
            heappop(queue)
    return budget


@dataclass(frozen=True)
class Knapsack(Sampler):
    """Knapsack RL (arXiv 2509.25849): rollouts are allotted where they are most likely to give a gradient worth having.

    Written after the released code (liziniu/KnapsackRL, `verl/trainer/ppo/exploration_utils.py`, `ray_trainer.py` and
    `verl/utils/dataset/rl_dataset.py`, read, not executed) and the paper's abstract; its text was not read. Prompts
    come from the stream in its order, and a step has `train.prompts` x `train.rollouts` rollouts, as without it:

    - A problem that was never rolled gets `train.rollouts`. Every other one gets `least`.
    - What is left goes to problems with a success rate 0 < p < 1, so that the sum of their values is the largest that
      the budget and `most` permit. With N rollouts the value is (1 - p^N - (1 - p)^N) p (1 - p)^2: the probability of
      a gradient, times the gain of p that a step is expected to bring.
    - Before that, problems with p = 0 get, evenly, what problems with 0 < p < 1 do not need for both outcomes with
      probability `confidence` (the fallback; they get all of it, where no problem has 0 < p < 1).
    - p is the success rate of a problem's latest group or, if the group is smaller than `evidence`, of its latest
      rollouts.

    Defaults are the released scripts' values. Differences from the code: the allocation is exact (the code's program
    credits the first rollout beyond `least` with the rollouts before it, too); `most` holds always, and what it shuts
    out goes to the problems with the fewest rollouts; without a problem of p = 0 that rest stays with 0 < p < 1 (the
    code gives it to p = 1, and divides by 0 if there is no such problem either); a problem counts once it was rolled
    (the code wants 8 rollouts of it); which rollouts of an older group still count is not looked at, only their share.
    A mini-batch has whole groups, so mini-batches differ in their number of rollouts; the code shuffles rollouts into
    equal ones. A group weighs in the update by its rollouts. With backend=local only, and only for methods that compare
    a group with nothing else.

    Checked: worked numbers, the allocation against a dynamic program (`tests/unit/test_knapsack.py`), updates against
    the updates of each group alone (`tests/equivalence/test_uneven_groups.py`).
    """

    name: ClassVar[str] = "knapsack"
    needs_repeats: ClassVar[bool] = True
    uneven_groups: ClassVar[bool] = True

    least: int = identity(2, ge=2)
    """Rollouts that every prompt gets."""
    most: int = identity(128, ge=2)
    """Rollouts that no prompt gets more of. A group is never split, so memory grows with them."""
    confidence: float = identity(0.9, gt=0, lt=1)
    """Probability of a correct and an incorrect rollout from which on prompts with p = 0 get what is left."""
    evidence: int = identity(16, ge=1)
    """Latest rollouts of a problem that its success rate is of; more, if its latest group has more."""

    def draw(self, request: Request, state: State) -> Draw:
        rows, positions = table.read(state, Evidence), request.fresh(request.prompts)
        evidence = [rows.get(number) for number in request.stream.numbers(positions)]
        rates = [row.p if row else None for row in evidence]
        return Draw(tuple(positions), positions.stop, tuple(self.allotted(rates, request.rollouts)))

    def allotted(self, rates: Sequence[float | None], rollouts: int) -> list[int]:
        """Rollouts of prompts with these success rates, `rollouts` on average; None for a prompt without rollouts."""
        counts = [rollouts if p is None else self.least for p in rates]
        budget = rollouts * len(rates) - sum(counts)
        rate_of = {index: p for index, p in enumerate(rates) if p is not None and 0 < p < 1}
        unsolved_indices = [index for index, p in enumerate(rates) if p == 0]
        spare = max(budget - sum(self._enough(p) for p in rate_of.values()), 0)
        budget += give(counts, unsolved_indices, spare, self.most, counts.__getitem__) - spare
        budget = give(counts, [*rate_of], budget, self.most, lambda index: -gain(rate_of[index], counts[index]))
        # The rest that `most` excludes goes to any other prompt with room.
        give(counts, range(len(rates)), budget, self.most, counts.__getitem__)
        return counts

    def _enough(self, p: float) -> int:
        """Rollouts that have both outcomes with probability `confidence`, by the likelier outcome alone."""
        return min(int(math.log(1 - self.confidence) / math.log(max(p, 1 - p))), self.most)

    def after(self, finished: Finished, state: State) -> State:
        rows = table.read(state, Evidence)
        for group in finished.groups:
            evidence, correct = rows.get(group.number, Evidence()), round(group.p * group.rollouts)
            rows[group.number] = evidence.then(correct, group.rollouts, self.evidence)
        return table.write(rows, Evidence)

    def contradictions(self, run: Run) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(run)
        if not self.least <= run.rollouts <= self.most:
            name, value = ("least", self.least) if self.least > run.rollouts else ("most", self.most)
            yield (
                f"sampler.{name}={value} does not permit train.rollouts={run.rollouts} on average",
                f"sampler.{name}={run.rollouts}",
            )
