"""Truncated importance sampling (TIS) between the rollout engine and the trainer (`cluster.rollout_correction`).

Both have the same weights but compute with other kernels and other rounding, so the policy that sampled is not quite
the one that is trained. Yao et al. (2025, https://fengyao.notion.site/off-policy-rl) multiply the policy gradient of
each token by min(pi_trainer / pi_engine, cap). verl computes these weights, and metrics of them.
"""

from dataclasses import replace

from torch import Tensor

from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import TokenLoss

WEIGHTS = "rollout_is_weights"
"""The queue field with each token's weight."""
CORRECTED = "policy"
"""The term of a loss that is weighted. The others, as the hinge, are no expectations over what was sampled."""


def weights(trainer_BT: Tensor, engine_BT: Tensor, mask_BT: Tensor, cap: float) -> tuple[Tensor, dict[str, float]]:
    """weight_BT of each token, 0 on padding, and verl's metrics of the weights (`rollout_corr/...`).

    trainer_BT, engine_BT: log-probabilities by the trainer before its update, and by the rollout engine, nats.
    """
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    weight_BT, metrics = compute_rollout_correction_weights(
        log_ratio=trainer_BT - engine_BT, response_mask=mask_BT, rollout_is="token", rollout_is_threshold=cap
    )
    return weight_BT, {f"rollout_corr/{name}": value for name, value in metrics.items()}


def corrected(loss: TokenLoss, weight_BT: Tensor) -> TokenLoss:
    """`loss` with the term CORRECTED weighted.

    Raises:
        RunFailed: it has no such term.
    """
    if all(term.name != CORRECTED for term in loss.terms):
        raise RunFailed(
            f"cluster.rollout_correction weights the term `{CORRECTED}` of a loss; this method has none",
            fix="cluster.rollout_correction=null",
        )
    return TokenLoss(
        tuple(
            replace(term, value_BT=term.value_BT * weight_BT) if term.name == CORRECTED else term for term in loss.terms
        )
    )
