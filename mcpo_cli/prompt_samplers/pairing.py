"""Positive-negative pairing: rarely correct prompts and the same number of rarely incorrect ones."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from mcpo_cli.prompt_samplers import table
from mcpo_cli.prompt_samplers.base import Draw, Finished, Request, Sampler, State
from mcpo_cli.settings import identity


class RarePrompt(NamedTuple):
    """A prompt with a rare outcome in its latest group."""

    position: int
    """Its position in the stream."""
    brittle: int
    """1 if the rare outcome is a wrong answer, 0 if it is a correct one."""


@dataclass(frozen=True)
class Pairing(Sampler):
    """Positive-negative pairing (arXiv 2602.03452): hard but solvable prompts beside easy but brittle ones.

    What is known of the paper here is its abstract and a summary by others; its full text was not read and no code was
    found. It pairs one prompt that is correct in few rollouts with one that is wrong in few (accuracy from 1 - c/G to
    1 - 1/G), once, before training. Here the pairs are chosen anew at each step:

    - A prompt is a candidate while its latest group had 1 to `rare` correct rollouts (hard but solvable) or 1 to `rare`
      incorrect ones (easy but brittle).
    - A batch takes up to `share` of its prompts from the candidates, at random, as many of either kind. Fresh prompts
      are the rest, from which new candidates come.

    The paper's Weighted GRPO gives correct answers the reward 1 and incorrect ones -lambda, then normalises in the
    group. Where a group is normalised by mean and standard deviation, that leaves every advantage as it is, for any
    lambda, so `method=grpo` is that loss.

    Checked: worked numbers, and the equality of the advantages (`tests/unit/test_samplers.py`).
    """

    name: ClassVar[str] = "pairing"

    share: float = identity(0.5, ge=0, le=1)
    """Most of a batch that pairs take, as a share of `train.prompts`."""
    rare: int = identity(2, ge=1)
    """Most rollouts with the rare outcome."""

    def draw(self, request: Request, state: State) -> Draw:
        kinds: tuple[list[int], list[int]] = ([], [])
        rows = table.read(state, RarePrompt)
        for number, row in rows.items():
            kinds[row.brittle].append(number)
        pairs = min(int(self.share * request.prompts) // 2, *map(len, kinds))
        rng = request.rng
        numbers = [number for kind in kinds for number in rng.sample(kind, pairs)]
        return Draw.with_fresh(request, {number: rows[number].position for number in numbers})

    def after(self, finished: Finished, state: State) -> State:
        rows = table.read(state, RarePrompt)
        for group in finished.groups:
            rows.pop(group.number, None)
            correct = round(group.p * group.rollouts)
            rare_count = min(correct, group.rollouts - correct)
            if 1 <= rare_count <= self.rare:
                rows[group.number] = RarePrompt(group.position, int(group.p > 0.5))
        return table.write(rows, RarePrompt)
