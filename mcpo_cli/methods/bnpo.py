"""BNPO (arXiv 2506.02864): rewards divided by the density of a Beta distribution fitted to the batch's accuracies.

With m and v the mean and sample variance of p over the prompts of the global step: k = m(1 - m)/v - 1, alpha = max(1,
1 + k m/3), beta = max(1, 1 + k(1 - m)/3), A = (r - mean r) min(1/Beta(p; alpha, beta), 1e6); A_PG. The loss is PPO's
clipped surrogate summed over tokens, mean over sequences.

Defaults: clip .2/.2, `seq-mean-token-sum` (released code). Edge cases: v = 0 or one prompt gives the weight 1 (the
code divides by 0); v so large that k < 0 gives alpha = beta = 1, weight 1. Reductions: alpha = beta = 1 is `dr_grpo`'s
A, alpha = beta = 3/2 is `grpo`'s up to the factor 8/pi.

The paper's decomposition of several rewards is left out. TRL's `loss_type=bnpo` is another thing, a mean over the
tokens of a local batch. W(p) depends on the batch: no curve. Checked: weights equal the authors' function (executed).
Not verified: the arXiv number is from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mcpo_cli.methods.base import Method
from mcpo_cli.methods.group_relative import EQUAL, Aggregation, Clipped, GroupRelative

if TYPE_CHECKING:
    from torch import Tensor


def beta_shape(p_P: Tensor) -> tuple[Tensor, Tensor]:
    """alpha and beta of the batch's accuracies p_P, 0-dimensional."""
    mean, variance = p_P.mean(), p_P.var() if len(p_P) > 1 else p_P.sum() * 0
    spread = variance > EQUAL**2
    k = (mean * (1 - mean) / variance.where(spread, variance + 1) - 1) * spread
    return (1 + k * mean / 3).clamp(min=1), (1 + k * (1 - mean) / 3).clamp(min=1)


@dataclass(frozen=True)
class Bnpo(Clipped, GroupRelative):
    """Beta Normalization Policy Optimization."""

    name: ClassVar[str] = "bnpo"

    aggregation: Aggregation = "seq-mean-token-sum"
    """How token losses become one number; the sum over tokens in the released code."""

    query_weight = Method.query_weight

    def divisor(self, reward_PG: Tensor, p_P1: Tensor) -> Tensor:
        """The density at p, at least 1e-6; the groups must be those of one whole step."""
        alpha, beta = beta_shape(p_P1.squeeze(-1))
        log_density_P1 = (alpha - 1).xlogy(p_P1) + (beta - 1).xlogy(1 - p_P1)
        log_density_P1 = log_density_P1 - alpha.lgamma() - beta.lgamma() + (alpha + beta).lgamma()
        return log_density_P1.exp().clamp(min=1e-6)
