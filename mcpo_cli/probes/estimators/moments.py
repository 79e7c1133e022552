"""Mean and variance of an estimator of the gradient, and what they say of it."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCKS = 20
"""Parts of a sample that the jackknife leaves out one by one."""


@dataclass(frozen=True)
class Moments:
    """Of a random gradient x, in relation to the exact gradient g: what the measures need."""

    along: float
    """E<x, g>."""
    mean_square: float
    """|E x|^2. Estimated without bias from a sample, so that it may be below 0 there."""
    square: float
    """E|x|^2."""
    exact: float
    """|g|^2."""

    def measures(self) -> dict[str, float]:
        """The measures by name; NaN where a mean of 0 leaves one undefined.

        `gain`: the length of the mean along g, over |g|. `bias`: |mean - g| / |g|, which has a meaning where the
        method means to estimate g itself. `cosine_mean`: of the mean and g; `bias_scaled`: what is left of `bias` after
        the best scaling of the mean, the sine of their angle. `noise`: standard deviation over the length of the mean.
        `cosine`: of a single estimate and g, as root mean square: E<x, g> / (|g| sqrt(E|x|^2)). Its square is the share
        of the progress of a step along g that a step along x is expected to make, each of its best length and under
        one curvature.
        """
        length, spread = (math.sqrt(max(value, 0)) for value in (self.mean_square, self.square - self.mean_square))
        # A mean that is 0 up to rounding, or whose estimate is not above 0, has no direction.
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
        """Of all batches, or of those of the other blocks."""
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
            f"{name}_se": math.sqrt((BLOCKS - 1) * float(np.var([one[name] for one in left_out])))
            for name in ("cosine_mean", "cosine")
        }
        return self.moments().measures() | errors
