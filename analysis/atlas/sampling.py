"""Moments of an estimator from drawn batches, for every method."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mcpo_cli.methods import Method, MiniBatch, Signals, State

from .estimate import Circumstances, Drawn, Moments, compute, draw, gradients
from .world import ACCURACIES, LIMIT, responses

SINGLY = 300
"""Batches of a method that has to be called for each of them."""
ROLLOUTS = 150_000
"""Rollouts of a method that can be called for many batches at once; at least SINGLY batches are drawn."""
CALL = 20_000
"""Maximum rollouts of one call."""
CHECKED = 4
"""Batches on which one call must equal single ones."""
Divide = Callable[[MiniBatch], int]
DIVISORS: tuple[Divide, ...] = (lambda total: total.sequences, lambda total: total.tokens)
"""Divisors that a loss may have."""
BLOCKS = 20
"""Parts of a sample that the jackknife leaves out one by one."""


class Sample:
    """Gradients that were drawn, as sums over BLOCKS blocks of batches."""

    def __init__(self, exact_D: Tensor) -> None:
        self._exact_D = exact_D
        self._sum_KD = exact_D.new_zeros(BLOCKS, len(exact_D))
        self._square_K, self._number_K = exact_D.new_zeros(BLOCKS), exact_D.new_zeros(BLOCKS)

    def add(self, gradient_ND: Tensor, first: int) -> None:
        """Gradients of batches, the `first` of which is that number of the sample."""
        block_N = (torch.arange(len(gradient_ND)) + first) % BLOCKS
        self._sum_KD.index_add_(0, block_N, gradient_ND)
        self._square_K.index_add_(0, block_N, gradient_ND.square().sum(-1))
        self._number_K += block_N.bincount(minlength=BLOCKS)

    def moments(self, without: int | None = None) -> Moments:
        """The moments of all batches, or of those of the other blocks."""
        kept_K = torch.arange(BLOCKS) != (-1 if without is None else without)
        number = float(self._number_K[kept_K].sum())
        mean_D, square = self._sum_KD[kept_K].sum(0) / number, float(self._square_K[kept_K].sum()) / number
        of_mean = float(mean_D @ mean_D)
        # The square of a mean of N is too large by the variance over N.
        mean_square = (number * of_mean - square) / (number - 1)
        return Moments(float(mean_D @ self._exact_D), mean_square, square, float(self._exact_D @ self._exact_D))

    @property
    def batches(self) -> int:
        """Gradients that were added."""
        return int(self._number_K.sum())

    def measures(self) -> dict[str, float]:
        """The measures, and the standard errors `cosine_mean_se` and `cosine_se` by jackknife."""
        left_out = [self.moments(block).measures() for block in range(BLOCKS)]
        errors = {
            f"{name}_se": math.sqrt((BLOCKS - 1) * float(np.var([estimate[name] for estimate in left_out])))
            for name in ("cosine_mean", "cosine")
        }
        return self.moments().measures() | errors


def sampled(method: Method, case: Circumstances, rollouts: int, seed: int = 0) -> Sample:
    """Estimates from drawn batches. The same seed draws the same responses for every method.

    A method with a memory sees the batches one after another, as global steps under a constant policy; the estimate
    from the first is left out.
    """
    P, sample = len(ACCURACIES), Sample(case.exact_PSV.flatten())
    divide = _divisor(method, case, rollouts, seed)
    if divide is None:
        _singly(method, case, draw(case, SINGLY, rollouts, seed), sample)
        return sample
    batches, size = max(ROLLOUTS // (P * rollouts), SINGLY), max(CALL // (P * rollouts), 1)
    for first in range(0, batches, size):
        number = min(size, batches - first)
        draws = draw(case, number, rollouts, seed + first)
        sample.add(gradients(case, draws, _together(method, case, draws, divide), number), first)
    return sample


def _singly(method: Method, case: Circumstances, draws: Drawn, sample: Sample) -> None:
    state: State = {}
    for number in range(len(draws.prompt_M) // len(ACCURACIES)):
        batch = _batch(draws, number)
        computed = compute(method, case, batch, state, seed=number)
        if not computed.state or state:
            sample.add(gradients(case, batch, computed.coefficient_MGT, 1), number)
        state = computed.state


def _divisor(method: Method, case: Circumstances, rollouts: int, seed: int) -> Divide | None:
    """The divisor by which the loss of many batches differs from the loss of each; None if no divisor fits."""
    draws = draw(case, CHECKED, rollouts, seed)
    single = [compute(method, case, _batch(draws, number), {}, seed=number) for number in range(CHECKED)]
    if any(computed.state for computed in single):
        return None
    for divide in DIVISORS:
        together_MGT = _together(method, case, draws, divide)
        parts = together_MGT.split(len(ACCURACIES))
        largest = max(float(computed.coefficient_MGT.abs().max()) for computed in single)
        if all(
            float((computed.coefficient_MGT - part).abs().max()) <= 1e-9 * largest
            for computed, part in zip(single, parts, strict=True)
        ):
            return divide
    return None


def _together(method: Method, case: Circumstances, draws: Drawn, divide: Divide) -> Tensor:
    """The coefficients of many batches from one call, each with the divisor of its own batch."""
    computed, P = compute(method, case, draws, {}, seed=0), len(ACCURACIES)
    length_MG = responses().length_R[draws.response_MG]
    total = divide(MiniBatch.of(length_MG, computed.signals, LIMIT))
    divisor_M = [divide(_total(length_MG, computed.signals, slice(at, at + P))) for at in range(0, len(length_MG), P)]
    factor_M = length_MG.new_tensor(divisor_M).double().repeat_interleave(P)
    return computed.coefficient_MGT * total / factor_M[:, None, None]


def _total(length_MG: Tensor, signals: Signals, index: slice) -> MiniBatch:
    return MiniBatch.of(length_MG[index], signals.map(lambda tensor: tensor[index]), LIMIT)


def _batch(draws: Drawn, number: int) -> Drawn:
    P = len(ACCURACIES)
    return draws.select(slice(number * P, (number + 1) * P))
