"""MoPPS: a posterior of each prompt's success rate, sampled to choose prompts of medium difficulty before rollouts."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from mcpo_cli.prompt_samplers import table
from mcpo_cli.prompt_samplers.base import Draw, Finished, Request, Sampler, State
from mcpo_cli.settings import identity

PRIOR = 1.0
"""Both parameters of the Beta prior: uniform on [0, 1]."""


class Posterior(NamedTuple):
    """Beta(alpha, beta) of a problem's success rate."""

    alpha: float = PRIOR
    beta: float = PRIOR

    def then(self, right: float, wrong: float, discount: float) -> "Posterior":
        """After a group with this many correct and incorrect rollouts; `discount` 1 keeps all evidence, 0 none."""
        return Posterior(
            discount * self.alpha + (1 - discount) * PRIOR + right,
            discount * self.beta + (1 - discount) * PRIOR + wrong,
        )


@dataclass(frozen=True)
class Mopps(Sampler):
    """MoPPS (arXiv 2507.04632), Model Predictive Prompt Selection: Thompson sampling of prompts near a target success.

    Written after the released code (thu-rllab/MoPPS, `recipe/ours/mopps.py`, read, not executed) and the abstract:

    - Candidates are the next `candidates` batches of the stream; candidates that are not chosen are passed over.
    - A success rate is drawn for each from its posterior, a Beta distribution with the prior Beta(1, 1). The batch is
      the prompts whose draw is nearest to `target` (the code's strategy `topk`).
    - After the step the posteriors of the chosen candidates are updated: alpha <- discount alpha + (1 - discount) 1 +
      correct rollouts, and likewise beta with the incorrect ones. The policy moves, so old evidence fades.

    Defaults: `target` 0.5 (code); `candidates` 8 and `discount` 0.5 are from the released scripts for Countdown and
    Geometry3k without a pre-computed prior (their script for MATH has 16; the configuration's own default forgets
    nothing). The strategy `threshold`, and a prior from a file, are left out. No problem is twice among the candidates.

    Checked: worked numbers, and the choice against independent draws (`tests/unit/test_samplers.py`).
    """

    name: ClassVar[str] = "mopps"
    needs_repeats: ClassVar[bool] = True

    target: float = identity(0.5, ge=0, le=1)
    """Success rate that the drawn ones should be near."""
    candidates: int = identity(8, ge=1)
    """Batches of the stream that a batch is chosen from; fewer where there are fewer problems."""
    discount: float = identity(0.5, ge=0, le=1)
    """Weight of old evidence when new arrives; 1 keeps all of it."""

    def draw(self, request: Request, state: State) -> Draw:
        rows, rng = table.read(state, Posterior), request.rng
        count = min(self.candidates * request.prompts, request.stream.distinct)
        cursor, position_of = request.cursor, dict[int, int]()
        while len(position_of) < count:
            positions = range(cursor, cursor + count - len(position_of))
            for position, number in zip(positions, request.stream.numbers(positions), strict=True):
                position_of.setdefault(number, position)
            cursor = positions.stop
        draws = {number: rng.betavariate(*rows.get(number, Posterior())) for number in position_of}
        # Stable: of equals, the first of the stream.
        ranking = sorted(position_of, key=lambda number: (draws[number] - self.target) ** 2)
        return Draw(tuple(position_of[number] for number in ranking[: request.prompts]), cursor)

    def after(self, finished: Finished, state: State) -> State:
        rows = table.read(state, Posterior)
        for group in finished.groups:
            correct = round(group.p * group.rollouts)
            posterior = rows.get(group.number, Posterior())
            rows[group.number] = posterior.then(correct, group.rollouts - correct, self.discount)
        return table.write(rows, Posterior)
