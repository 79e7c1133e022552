"""Gradients that a method computes from drawn responses: its own `signals` and `token_loss`, as a backend calls them.

`Moments` are mean and variance of such gradients, and the measures of an estimator that follow from them.

The policy is tabular, so a gradient is known from the derivative of the loss with respect to the log-probability of
each drawn token, with the sign changed: its coefficient.

Shape suffixes: those of `world.py`; G rollouts of a prompt; N batches, each a group of every prompt.
"""

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli.backends import checks, corrections
from mcpo_cli.config.schema import Train
from mcpo_cli.methods import Method, MiniBatch, Signals, State, Step, TokenBatch, reduce

from .world import LIMIT, SYMBOLS, Policy, World, path, responses, world


@dataclass(frozen=True)
class Circumstances:
    """The circumstances of estimates: the number of steps after sampling, and the sampler."""

    stale: int
    """k: gradient steps between the policy that was sampled from and the one whose gradient is wanted."""
    train: Train
    """Its `sampler_rounding` and `correction` are those of the estimates."""

    @property
    def world(self) -> World:
        return world()

    @property
    def policy(self) -> Policy:
        """The policy whose gradient is wanted."""
        return path(self.stale)[-1]

    @property
    def sampler(self) -> Policy:
        """The policy that responses are drawn from."""
        return self.world.base.rounded(self.train.sampler_rounding)

    @property
    def reference(self) -> Policy:
        """The reference policy of methods that have one: as far behind the base as sixteen steps are ahead of it."""
        base, *_, ahead = path(16)
        return Policy(2 * base.logits_PSV - ahead.logits_PSV)

    @property
    def exact_PSV(self) -> Tensor:
        """The gradient of the mean accuracy under `policy`."""
        return self.world.gradient(self.policy)


@dataclass(frozen=True)
class Drawn:
    """Groups of responses; the policy's numbers are looked up in those of all responses."""

    prompt_M: Tensor
    """The prompt of each group."""
    response_MG: Tensor

    def of(self, table_PR: Tensor) -> Tensor:
        """The value of `table_PR` (or PRT) for each drawn response, MG (or MGT)."""
        value_MG: Tensor = table_PR[self.prompt_M[:, None], self.response_MG]
        return value_MG

    def select(self, index: slice) -> "Drawn":
        """Some of the groups."""
        return Drawn(self.prompt_M[index], self.response_MG[index])


@dataclass(frozen=True)
class Computed:
    """A method's result for one global step that is one mini-batch."""

    coefficient_MGT: Tensor
    """Minus the derivative of the loss with respect to the log-probability of each token."""
    signals: Signals
    state: State


def compute(method: Method, case: Circumstances, draws: Drawn, state: State, seed: int) -> Computed:
    """The coefficients of all tokens of `draws`. seed: of the method's own random draws.

    Raises:
        RunFailed: the method broke its contract, or returned numbers that are not finite.
    """
    texts, base = responses(), case.world.base
    length_MG, mask_MGT = texts.length_R[draws.response_MG], texts.mask_RT[draws.response_MG]
    correct_MG, old_MGT = draws.of(case.world.correct_PR), draws.of(base.logp_PRT)
    step = Step(
        reward_PG=correct_MG.double(),
        correct_PG=correct_MG,
        length_PG=length_MG,
        prompt_P=draws.prompt_M,
        max_response=LIMIT,
        logp_PGT=_cropped(old_MGT, length_MG),
        entropy_PGT=_cropped(draws.of(case.sampler.entropy_PRT), length_MG),
        collision_PGT=_cropped(draws.of(base.collision_PRT), length_MG),
        answer_PG=texts.answer_R[draws.response_MG],
        greedy_reward_P=(base.greedy_PR & case.world.correct_PR).any(-1)[draws.prompt_M].double(),
    )
    signals, state = checks.signals(method, step, state)
    if case.train.sampler_rounding:
        extra = corrections.columns(case.train, old_MGT, draws.of(case.sampler.logp_PRT), mask_MGT)
        columns = {name: _cropped(column, length_MG) for name, column in extra.items()}
        signals = dataclasses.replace(signals, columns={**signals.columns, **columns})
    batch = _batch(method, case, draws, signals, length_MG)
    if method.prepares:
        batch = batch.replace(columns={**batch.columns, **method.prepare(batch, seed)})
    logp_BT = batch.logp_BT.requires_grad_()
    loss = corrections.applied(case.train, checks.token_loss(method, batch), batch)
    (slope_BT,) = torch.autograd.grad(reduce(loss, batch.mask_BT), logp_BT)
    coefficient_MGT = old_MGT * 0
    coefficient_MGT[..., : slope_BT.shape[1]] = -slope_BT.view(*length_MG.shape, -1)
    return Computed(coefficient_MGT * mask_MGT, signals, state)


def _batch(method: Method, case: Circumstances, draws: Drawn, signals: Signals, length_MG: Tensor) -> TokenBatch:
    """The whole step as one mini-batch under the policy that is trained."""
    policies = path(case.stale)

    def sequences(table_PRT: Tensor) -> Tensor:
        return _cropped(draws.of(table_PRT), length_MG).flatten(0, 1)

    flat = signals.map(lambda tensor: tensor.flatten(0, 1))
    mask_BT = _cropped(responses().mask_RT[draws.response_MG], length_MG).flatten(0, 1)
    return TokenBatch(
        logp_BT=sequences(policies[-1].logp_PRT),
        logp_old_BT=sequences(policies[0].logp_PRT),
        mask_BT=mask_BT,
        advantage_BT=flat.advantage.view(len(mask_BT), -1),
        group_B=torch.arange(len(length_MG)).repeat_interleave(length_MG.shape[1]),
        total=MiniBatch.of(length_MG, signals, LIMIT),
        columns=flat.columns,
        logp_previous_BT=sequences(policies[max(case.stale - 1, 0)].logp_PRT)
        if _has(method, "previous_policy")
        else None,
        logp_reference_BT=sequences(case.reference.logp_PRT) if _has(method, "reference_policy") else None,
        entropy_BT=sequences(policies[-1].entropy_PRT) if _has(method, "current_entropy") else None,
    )


def _has(method: Method, need: str) -> bool:
    return need in method.needs


def _cropped(value_MGT: Tensor, length_MG: Tensor) -> Tensor:
    """Without the columns that are padding in every row, as a `Step` is."""
    return value_MGT[..., : int(length_MG.max())]


def gradients(case: Circumstances, draws: Drawn, coefficient_MGT: Tensor, batches: int) -> Tensor:
    """The gradient of each of `batches` batches of equally many groups, flat: N by all logits."""
    texts, policy = responses(), case.policy
    P, states = policy.logits_PSV.shape[:2]
    batch_M = torch.arange(len(draws.prompt_M)) // (len(draws.prompt_M) // batches)
    state_MGT, token_MGT = texts.state_RT[draws.response_MG], texts.token_RT[draws.response_MG]
    place_MGT = ((batch_M * P + draws.prompt_M)[:, None, None] * states + state_MGT) * (SYMBOLS + 1) + token_MGT
    # Padding has the coefficient 0, so it may be added anywhere.
    sum_N = coefficient_MGT.new_zeros(batches * policy.logits_PSV.numel())
    sum_N.index_add_(0, place_MGT.flatten(), coefficient_MGT.flatten())
    return policy.gradient(sum_N.view(batches, P, states, SYMBOLS + 1)).flatten(1)


def draw(case: Circumstances, batches: int, rollouts: int, seed: int) -> Drawn:
    """Responses of the sampler: `batches` global steps, each a group of every prompt. The same seed draws the same."""
    rng, probability_PR = torch.Generator().manual_seed(seed), case.sampler.probability_PR
    P = len(probability_PR)
    drawn_PX = torch.multinomial(probability_PR, batches * rollouts, replacement=True, generator=rng)
    response_MG = drawn_PX.view(P, batches, rollouts).transpose(0, 1).reshape(batches * P, rollouts)
    return Drawn(torch.arange(P).repeat(batches), response_MG)


@dataclass(frozen=True)
class Moments:
    """Moments of a random gradient x in relation to the exact gradient g, from which the measures follow."""

    along: float
    """E<x, g>."""
    mean_square: float
    """|E x|^2. Estimated without bias from a sample, so that it may be below 0 there."""
    square: float
    """E|x|^2."""
    exact: float
    """|g|^2."""

    def measures(self) -> dict[str, float]:
        """The measures by name; NaN if a mean of 0 leaves one undefined.

        `gain`: the length of the mean along g, over |g|. `bias`: |mean - g| / |g|, which is meaningful if the method
        aims to estimate g itself. `cosine_mean`: of the mean and g; `bias_scaled`: `bias` after the best scaling of the
        mean, the sine of their angle. `noise`: standard deviation over the length of the mean. `cosine`: of a single
        estimate and g, as root mean square: E<x, g> / (|g| sqrt(E|x|^2)). Its square is the expected progress of a step
        along x as a share of that of a step along g, each of its best length and under one curvature.
        """
        length, spread = (math.sqrt(max(value, 0)) for value in (self.mean_square, self.square - self.mean_square))
        # A mean that is 0 up to rounding, or whose estimated square is not above 0, has no direction.
        if self.mean_square <= 1e-18 * max(self.square, self.exact):
            length = math.nan
        cosine_mean = min(1.0, max(-1.0, self.along / (length * math.sqrt(self.exact))))
        cosine_mean = math.nan if math.isnan(length) else cosine_mean
        difference = self.mean_square - 2 * self.along + self.exact
        return {
            "gain": self.along / self.exact,
            "bias": math.sqrt(max(difference, 0) / self.exact),
            "cosine_mean": cosine_mean,
            "bias_scaled": math.sqrt(1 - cosine_mean**2),
            "noise": spread / length,
            "cosine": self.along / math.sqrt(self.exact * self.square) if self.square else math.nan,
        }
