"""What Clip-Cov and KL-Cov share: the covariance of advantage and log-probability, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpo_cli.methods.base import TokenBatch

if TYPE_CHECKING:
    from torch import Tensor


def covariance(batch: TokenBatch) -> Tensor:
    """cov_BT = (A - mean A)(log pi - mean log pi), means over the tokens of `batch`, a mini-batch; 0 on padding."""
    mask_BT, tokens = batch.mask_BT, batch.mask_BT.sum()
    A_BT = batch.A_BT * mask_BT
    logp_BT = batch.logp_BT.detach()
    centred_BT = (A_BT - A_BT.sum() / tokens) * (logp_BT - (logp_BT * mask_BT).sum() / tokens)
    return centred_BT * mask_BT
