"""Methods of mcpo in verl's own registries (0.9.1), for a training script that already runs with verl.

    VERL_USE_EXTERNAL_MODULES=verl_methods python -m verl.trainer.main_ppo \\
        algorithm.adv_estimator=mcpo/gspo actor_rollout_ref.actor.policy_loss.loss_mode=mcpo/gspo ...

Every method whose loss needs nothing but log-probabilities, mask and advantages is registered, with its defaults, as
`mcpo/NAME`; `register(get(NAME, OPTION=...))` adds one with other options. verl's registries carry nothing else from
the advantages to the loss, so the others, MCPO's hinge among them, need `mcpo train backend=verl`.
"""

from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

from mcpo_cli.methods import Method, MiniBatch, Step, TokenBatch, get, reduce, registry

CORRECT = 0.5
"""A rollout is correct if its reward is larger."""


def fits(method: Method) -> bool:
    """True if verl's registries can carry the method's needs."""
    if method.columns or method.token_columns or method.needs or method.dynamic_sampling:
        return False
    step = Step(*(torch.tensor(value) for value in ([[0.0, 1.0]], [[False, True]], [[1, 1]], [0])), max_response=1)
    signals, memory = method.signals(step, {})
    return not memory and signals.counts_PG is None and not (method.prepares)


def register(method: Method, name: str = "") -> None:
    """Make `method` known to verl as advantage estimator and as policy loss `name`, by default mcpo/NAME.

    Raises:
        ValueError: verl's registries cannot carry its needs.
    """
    if not fits(method):
        raise ValueError(f"{method.name} needs more than log-probabilities and advantages: mcpo train backend=verl")
    name = name or f"mcpo/{method.name}"

    def advantages(
        token_level_rewards: Tensor, response_mask: Tensor, index: Any, config: Any = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        """Advantages of all tokens, twice: verl also wants returns. index: the group of each sequence."""
        groups = {group: number for number, group in enumerate(dict.fromkeys(index))}
        order_B = torch.tensor([groups[group] for group in index]).argsort(stable=True)
        shape, reward_B = (len(groups), -1), token_level_rewards.sum(-1)[order_B].double()
        step = Step(
            reward_PG=reward_B.view(shape),
            correct_PG=(reward_B > CORRECT).view(shape),
            length_PG=response_mask.sum(-1)[order_B].long().view(shape),
            prompt_P=torch.arange(len(groups), device=reward_B.device),
            max_response=response_mask.shape[1],
        )
        advantage = method.signals(step, {})[0].advantage.flatten(0, 1)[order_B.argsort()].view(len(reward_B), -1)
        width = response_mask.shape[1] - advantage.shape[1]
        if method.token_advantages and width:
            advantage = torch.nn.functional.pad(advantage, (0, width))
        advantage_BT = (advantage * response_mask).to(token_level_rewards.dtype)
        return advantage_BT, advantage_BT

    def loss(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The method's loss of a micro-batch, weighted over verl's mini-batch; `loss_agg_mode` is the method's own."""
        if rollout_is_weights is not None:
            raise ValueError(
                f"{name}: no correction of the rollout engine: algorithm.rollout_correction.rollout_is=null"
            )
        mask_BT, whole = response_mask.bool(), config.global_batch_info
        max_response = whole["loss_scale_factor"] or response_mask.shape[1]
        total = MiniBatch(int(whole["global_batch_size"]), int(whole["batch_num_tokens"]), 0, int(max_response))
        logp_BT, old_BT = (value.where(mask_BT, 0.0) for value in (log_prob, old_log_prob))
        group_B = torch.arange(len(mask_BT), device=mask_BT.device)
        tokens = TokenBatch(logp_BT, old_BT, mask_BT, advantages, group_B, total)
        with torch.no_grad():
            report = method.report(tokens).sums
        metrics = {key: float(top / bottom) for key, (top, bottom) in report.items() if bottom}
        return reduce(method.token_loss(tokens), mask_BT) * whole["dp_size"], metrics

    register_adv_est(name)(advantages)
    register_policy_loss(name)(loss)


for each in registry():
    if fits(get(each)):
        register(get(each))
