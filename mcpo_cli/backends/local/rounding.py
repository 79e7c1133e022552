"""The part of the change of log-probabilities over a gradient step that is rounding to bfloat16.

As long as no weight has changed, two passes over the same rows agree bit by bit. After a gradient step, however small,
all activations round differently, which moves log-probabilities as a drift of the policy would: a bound on drift, such
as the hinge of MCPO, cannot resolve less than this. It is measured once per run, over its first gradient step, because
the size depends on the model far more than on the step.
"""

import torch
from torch import Tensor

from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.policy import Policy

GROUPS = 4
"""Groups of rollouts that are measured."""


class Rounding:
    """Begins before a gradient step; `over_step` ends after it."""

    def __init__(self, policy: Policy, rollouts: Rollouts) -> None:
        index = torch.arange(min(GROUPS, len(rollouts.prompt_PS)), device=policy.device)
        self._rollouts = rollouts.select(index)
        exact_policy = Policy(policy.model, policy.device, lora=policy.lora, kept_rows=policy.kept_rows)
        self._policies = policy, exact_policy
        self._before = self._log_probs()

    def over_step(self) -> dict[str, float]:
        """Root mean squares over tokens, nats.

        `sanity/rounding_after_step`: of the difference between the change in bfloat16 and the change in float32 (TF32
        for logits on CUDA). `sanity/drift_after_step`: of the change in float32.
        """
        drift, exact_drift = (after - before for after, before in zip(self._log_probs(), self._before, strict=True))
        return {
            "sanity/rounding_after_step": float((drift - exact_drift).square().mean().sqrt()),
            "sanity/drift_after_step": float(exact_drift.square().mean().sqrt()),
        }

    @torch.no_grad()
    def _log_probs(self) -> list[Tensor]:
        """Log-probabilities of all sampled tokens in one row, under the policy as it computes and in float32."""
        rollouts = self._rollouts
        parts = rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT
        return [policy.log_probs(*parts)[rollouts.mask_PGT].double() for policy in self._policies]
