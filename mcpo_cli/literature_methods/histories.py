"""Methods that remember the results of each prompt from step to step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mcpo_cli.methods.base import Need, Signals, State, Step, TokenBatch
from mcpo_cli.methods.group_relative import Clipped, Standardized
from mcpo_cli.methods.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor


def remembered(state: State, prompt_P: Tensor, blank: Mapping[str, float]) -> tuple[dict[str, Tensor], Tensor]:
    """The remembered numbers of all prompts seen so far, this step's included.

    Args:
        prompt_P: the prompts of this step, possibly with duplicates.
        blank: names of the numbers, with their values for a new prompt.

    Returns:
        The state with a row for each prompt (`prompt`, ascending), and index_P of this step's; `state` is unchanged.
    """
    known_N = state.get("prompt", prompt_P[:0])
    all_prompts = prompt_P.new_zeros(len(known_N) + len(prompt_P))
    all_prompts[: len(known_N)], all_prompts[len(known_N) :] = known_N, prompt_P
    prompt_M, index = all_prompts.unique(return_inverse=True)
    columns = {"prompt": prompt_M}
    for name, value in blank.items():
        columns[name] = prompt_M.double() * 0 + value
        if name in state:
            columns[name][index[: len(known_N)]] = state[name]
    return columns, index[len(known_N) :]


@dataclass(frozen=True)
class Spo(Clipped, Standardized):
    """SPO, Single-stream Policy Optimization (arXiv 2509.13232): a tracked value of each prompt as baseline, no group.

    State of a prompt: a and b, its remembered numbers of correct and incorrect answers; v = a/(a + b). A = (r - v)
    standardised over the rollouts of the global step, with v from before the step; A_PG. Then a and b fade, a = keep
    a + right, b = keep b + wrong, keep = 2^(-D/half_life) within [keep_min, keep_max], D the KL divergence in nats
    between the policy that last saw the prompt and the current one. The loss is PPO's clipped surrogate.

    Defaults: half_life .06, [.875, .96], clip .2/.28 (independent re-implementations agree; the authors' recipe in verl
    has no tracker). A new prompt starts at a + b = 1/(1 - keep_min), 8 by default, and the accuracy `start`; the paper
    spends rollouts to find that. Edge cases: equal r - v give A = 0; groups with p = 0 or 1 have a gradient. Prompts
    that never come back leave REINFORCE with a constant baseline, so set `task.pool`. W(p) depends on the batch: no
    curve.

    Disagreements: the paper has one rollout a prompt; here all G of a prompt see the same v and update it at once. D
    needs the policy that last saw the prompt; it is not stored, and our stand-in is the change of the mean
    log-probability of the prompt's responses since then. keep_min = keep_max forgets at a constant rate. The paper
    samples prompts by sqrt(v(1 - v)); that changes the sampler and is left out. Not verified: the tracker was read in
    re-implementations only. verl and TRL have none.
    """

    name: ClassVar[str] = "spo"
    uses_dead_groups: ClassVar[bool] = True

    clip_high: float = dataclasses.field(default=0.28, metadata={"ge": 0.0})
    """The ratio is clipped above at 1 + clip_high."""
    half_life: float = dataclasses.field(default=0.06, metadata={"gt": 0.0})
    """The drift D, nats, that halves what is remembered."""
    keep_min: float = dataclasses.field(default=0.875, metadata={"ge": 0.0, "lt": 1.0})
    """The least share that is kept from visit to visit."""
    keep_max: float = dataclasses.field(default=0.96, metadata={"ge": 0.0, "le": 1.0})
    """The largest share that is kept; equal to keep_min, a constant rate."""
    start: float = dataclasses.field(default=0.5, metadata={"gt": 0.0, "lt": 1.0})
    """Accuracy that a prompt has before its first visit."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp"} if self.keep_min < self.keep_max else ())

    def contradictions(self, train: TrainSettings) -> Iterator[tuple[str, str]]:
        yield from super().contradictions(train)
        if self.keep_min > self.keep_max:
            yield (
                f"method.keep_min={self.keep_min:g} is larger than method.keep_max={self.keep_max:g}",
                f"method.keep_min={self.keep_max:g}",
            )

    def kept(self, drift_P: Tensor) -> Tensor:
        """The share of a and b that is kept after a drift of D, P."""
        return (-drift_P / self.half_life).exp2().clamp(self.keep_min, self.keep_max)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        right_PG, weight = step.correct_PG.double(), 1 / (1 - self.keep_min)
        blank = {"a": weight * self.start, "b": weight * (1 - self.start), "logp": float("nan")}
        memory, index_P = remembered(state, step.prompt_P, blank)
        value_P = (memory["a"] / (memory["a"] + memory["b"]))[index_P]
        advantage_PG = self.standardized((step.reward_PG - value_P[:, None]).flatten()).view_as(right_PG)
        logp_P = value_P * 0
        if step.logp_PGT is not None:
            logp_P = (step.logp_PGT.double() * step.mask_PGT).sum((-1, -2)) / step.length_PG.sum(-1)
        share = memory["a"] * 0 + 1
        share[index_P] = self.kept((logp_P - memory["logp"][index_P]).abs().nan_to_num(0))
        memory["a"] = (memory["a"] * share).index_add(0, index_P, right_PG.sum(-1))
        memory["b"] = (memory["b"] * share).index_add(0, index_P, (1 - right_PG).sum(-1))
        memory["logp"][index_P] = logp_P
        return Signals.of(advantage_PG), memory


RATIO_MAX = 10.0
"""Maximum of the upper bound."""


def smoothed(new: Tensor, total: Tensor, visit: Tensor) -> Tensor:
    """The smaller of S_new and S_tot in absolute value; `visit` counts from 1."""
    smooth_new, smooth_total = ((visit - 1) * new + total) / visit, (new + (visit - 1) * total) / visit
    return smooth_new.where(smooth_new.abs() < smooth_total.abs(), smooth_total)


@dataclass(frozen=True)
class Dcpo(Clipped, Standardized):
    """DCPO (arXiv 2509.02333): clip bounds that widen for unlikely tokens, rewards that cumulate over visits.

    Dynamic Clipping Policy Optimization. Clipping: the ratio stays in [1/2 + 1/2 sqrt(max(1 - 4 clip_low/q, 0)),
    min(1/2 + 1/2 sqrt(1 + 4 clip_high/q), 10)], q the probability of the token under the rollout policy (BT).
    Advantages (SAS): at a prompt's i-th visit, A_new standardises by its group, A_tot by all rewards ever seen for
    the prompt; S_new = ((i-1) A_new + A_tot)/i, S_tot = (A_new + (i-1) A_tot)/i, and A is the smaller of both in
    absolute value, S_tot at a tie; A_PG.

    Defaults: .16/.20 (paper). State of a prompt: visits, rewards, their sum and sum of squares. Edge cases: the first
    visit gives A_new; an all-correct group of a prompt that was once wrong has a gradient. At q < 4 clip_low the lower
    bound is 1/2. Prompts must come back (`task.pool`). W(p) depends on the past: no curve.

    Disagreement: the paper's loss sums means over tokens over the sequences; here it is divided by their number, a
    constant factor. Default `ddof=0`. Not verified: bounds were derived from Eq. 3, the paper's text was read; its
    code was not. Neither verl nor TRL has it.
    """

    name: ClassVar[str] = "dcpo"
    uses_dead_groups: ClassVar[bool] = True

    clip_low: float = dataclasses.field(default=0.16, metadata={"ge": 0.0, "lt": 1.0})
    """Width of the lower bound, which the token's probability scales."""
    clip_high: float = dataclasses.field(default=0.2, metadata={"ge": 0.0})
    """Width of the upper bound, which the token's probability scales."""

    def bounds(self, batch: TokenBatch) -> tuple[Any, Any]:
        inverse_BT = (-batch.logp_old_BT).exp()
        low_BT = (1 - 4 * self.clip_low * inverse_BT).clamp(min=0).sqrt()
        high_BT = (1 + 4 * self.clip_high * inverse_BT).sqrt()
        return 0.5 + 0.5 * low_BT, (0.5 + 0.5 * high_BT).clamp(max=RATIO_MAX)

    def signals(self, step: Step, state: State) -> tuple[Signals, State]:
        reward_PG = step.reward_PG.double()
        G, one_P = reward_PG.shape[-1], reward_PG[:, 0] * 0 + 1
        additions = {"visits": one_P, "count": one_P * G, "sum": reward_PG.sum(-1), "squares": (reward_PG**2).sum(-1)}
        memory, index_P = remembered(state, step.prompt_P, dict.fromkeys(additions, 0.0))
        memory |= {name: memory[name].index_add(0, index_P, value_P) for name, value_P in additions.items()}
        visit_P, count_P, sum_P, squares_P = (memory[name][index_P] for name in additions)
        mean_P = sum_P / count_P
        variance_P = (squares_P / count_P - mean_P**2) * count_P / (count_P - self.ddof)
        # The difference of squares is off by rounding where all rewards are equal.
        spread_P = variance_P > 1e-12
        std_P = variance_P.where(spread_P, variance_P * 0 + 1).sqrt()
        total_PG = (reward_PG - mean_P[:, None]) / std_P[:, None] * spread_P[:, None]
        advantage_PG = smoothed(self.standardized(reward_PG), total_PG, visit_P[:, None])
        return Signals.of(advantage_PG), memory
