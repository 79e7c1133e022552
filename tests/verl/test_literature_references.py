"""Methods of the zoo against verl 0.9.1's own functions: advantages, losses, gradients, weights of corrections."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from mcpo_cli.backends import corrections
from mcpo_cli.config.schema import Train
from mcpo_cli.literature_methods.likelihoods import covariance
from mcpo_cli.literature_methods.references import GrpoKl
from mcpo_cli.methods import Step, TokenBatch, get, reduce
from mcpo_cli.testing import mini_batch, step
from mcpo_cli.testing.batches import LIMIT

pytestmark = pytest.mark.verl
SEEDS = range(5)
MIXED = (1, 2, 3, 3)
"""Correct rollouts of 4, without dead groups: verl divides their rounding error by 1e-6, ours are 0."""

ADVANTAGES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("grpo", {"ddof": 1}, "grpo", {"norm_adv_by_std_in_grpo": True}),
    ("dr_grpo", {}, "grpo", {"norm_adv_by_std_in_grpo": False}),
    ("rloo", {}, "rloo", {}),
    ("rloo", {}, "rloo_vectorized", {}),
    ("opo", {}, "opo", {}),
    ("otb", {}, "optimal_token_baseline", {}),
    ("remax", {}, "remax", {}),
    ("reinforce_pp", {"baseline": "none"}, "reinforce_plus_plus", {}),
    ("reinforce_pp", {"baseline": "group"}, "reinforce_plus_plus_baseline", {}),
    ("gpg", {"count": "nonzero"}, "gpg", {}),
    ("gdpo", {"brevity": 0.0, "whiten": "tokens", "ddof": 1}, "gdpo", {}),
]


@pytest.mark.parametrize(("name", "options", "estimator", "arguments"), ADVANTAGES)
@pytest.mark.parametrize("seed", SEEDS)
def test_advantages(name: str, options: dict[str, Any], estimator: str, arguments: dict[str, Any], seed: int) -> None:
    of = step((0, 1, 2, 3, 4) if name == "reinforce_pp" else MIXED, seed=seed)
    ours_PG = get(name, **options).signals(of, {})[0].advantage
    theirs_BT = verl_advantages(of, estimator, **arguments)
    mask_BT = of.mask_PGT.flatten(0, 1)
    expected_BT = (ours_PG[..., None] if ours_PG.ndim == 2 else ours_PG).flatten(0, 1) * mask_BT
    # verl adds 1e-6 to the standard deviation.
    torch.testing.assert_close(theirs_BT.double(), expected_BT, rtol=5e-6, atol=1e-6)


def verl_advantages(of: Step, estimator: str, **arguments: Any) -> Tensor:
    """Advantages BT by verl's function of that name; the reward is at each response's last token."""
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo import core_algos

    if estimator == "optimal_token_baseline":
        assert of.logp_PGT is not None
        assert of.collision_PGT is not None
        arguments["old_log_probs"], arguments["sum_pi_squared"] = (
            value_PGT.flatten(0, 1) for value_PGT in (of.logp_PGT, of.collision_PGT)
        )
    if estimator == "remax":
        assert of.greedy_reward_P is not None
        arguments["reward_baselines"] = of.greedy_reward_P.repeat_interleave(of.reward_PG.shape[1])
    mask_BT = of.mask_PGT.flatten(0, 1)
    last_BT = mask_BT & (mask_BT.long().cumsum(-1) == mask_BT.sum(-1, keepdim=True))
    advantage_BT: Tensor = core_algos.get_adv_estimator_fn(estimator)(
        token_level_rewards=of.reward_PG.flatten()[:, None] * last_BT,
        response_mask=mask_BT.double(),
        index=np.repeat(np.arange(len(of.reward_PG)), of.reward_PG.shape[1]),
        config=AlgoConfig(),
        **arguments,
    )[0]
    return advantage_BT


def clip(low: float, high: float) -> dict[str, Any]:
    return {"clip_ratio_low": low, "clip_ratio_high": high}


PLAIN = {"clip_ratio": 0.2, **clip(0.2, 0.2)}
NARROW = {**PLAIN, **clip(0.1, 0.1)}
LOSSES: list[tuple[str, dict[str, Any], str, str, dict[str, Any]]] = [
    ("grpo", {}, "vanilla", "seq-mean-token-mean", PLAIN),
    ("grpo", {"aggregation": "seq-mean-token-sum"}, "vanilla", "seq-mean-token-sum", PLAIN),
    ("dapo", {"aggregation": "token-mean"}, "vanilla", "token-mean", {**PLAIN, "clip_ratio_high": 0.28}),
    ("dr_grpo", {}, "vanilla", "seq-mean-token-sum-norm", {**PLAIN, "global_batch_info": {"loss_scale_factor": LIMIT}}),
    ("gpg", {}, "gpg", "token-mean", PLAIN),
    ("gspo", {}, "gspo", "seq-mean-token-mean", clip(3e-4, 4e-4)),
    ("gspo", {"clip_low": 0.1, "clip_high": 0.05}, "gspo", "seq-mean-token-mean", clip(0.1, 0.05)),
    ("gmpo", {}, "geo_mean", "token-mean", clip(0.4, 0.4)),
    ("gmpo", {"clip_low": 0.2, "clip_high": 0.1}, "geo_mean", "token-mean", clip(0.2, 0.1)),
    ("cispo", {"ratio_min": 0.8, "ratio_max": 1.2}, "cispo", "token-mean", PLAIN),
    ("sapo", {}, "sapo", "seq-mean-token-mean", {"tau_pos": 1.0, "tau_neg": 1.05}),
    ("dual_clip", {"cap": 1.3}, "vanilla", "seq-mean-token-mean", {**PLAIN, "clip_ratio_c": 1.3}),
    ("dppo", {"limit_low": 0.1, "limit_high": 0.1}, "dppo_tv", "token-mean", {**NARROW, "clip_ratio_c": 20.0}),
    (
        "dppo",
        {"divergence": "kl", "limit_low": 0.1, "limit_high": 0.1, "cap": 1.1},
        "dppo_kl",
        "token-mean",
        {**NARROW, "clip_ratio_c": 1.1},
    ),
    ("dro", {}, "dro", "token-mean", {**PLAIN, "policy_loss": {"dro_beta": 0.1}}),
    ("kl_cov", {"share": 0.25}, "kl_cov", "token-mean", {"policy_loss": {"kl_cov_ratio": 0.25, "ppo_kl_coef": 0.1}}),
]


@pytest.mark.parametrize(("name", "options", "loss", "aggregation", "settings"), LOSSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_values_and_gradients(
    name: str, options: dict[str, Any], loss: str, aggregation: str, settings: dict[str, Any], seed: int
) -> None:
    of, method = step(MIXED, seed=seed), get(name, **options)
    batch = mini_batch(method, of, method.signals(of, {})[0], seed=seed + 10)
    ours = differentiated(lambda: reduce(method.token_loss(batch), batch.mask_BT), batch)
    theirs = differentiated(lambda: verl_loss(batch, loss, aggregation, settings), batch)
    # verl adds 1e-8 to lengths.
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def verl_loss(batch: TokenBatch, loss: str, aggregation: str, settings: dict[str, Any]) -> Tensor:
    """The loss by verl's function of that name."""
    from verl.trainer.ppo import core_algos
    from verl.workers.config import ActorConfig, PolicyLossConfig

    given = {**settings, "policy_loss": PolicyLossConfig(**settings.get("policy_loss", {}))}
    value: Tensor = core_algos.get_policy_loss_fn(loss)(
        old_log_prob=batch.logp_old_BT,
        log_prob=batch.logp_BT,
        advantages=batch.advantage_BT.expand_as(batch.logp_BT),
        response_mask=batch.mask_BT.double(),
        loss_agg_mode=aggregation,
        config=ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **given),
    )[0]
    return value


def differentiated(loss: Callable[[], Tensor], batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """Value, and gradient with respect to the log-probabilities of real tokens."""
    value = loss()
    (gradient_BT,) = torch.autograd.grad(value, batch.logp_BT)
    return value.detach(), gradient_BT * batch.mask_BT


@pytest.mark.parametrize("seed", SEEDS)
def test_clip_cov_drops_among_the_candidates_that_verl_drops_among(seed: int) -> None:
    """Both draw at random: here every candidate is drawn, so that the result is deterministic."""
    of, method = step(MIXED, seed=seed), get("clip_cov", cov_low=0.05, cov_high=5.0, share=1.0)
    batch = mini_batch(method, of, method.signals(of, {})[0], seed=seed + 10)
    settings = {**PLAIN, "policy_loss": {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.05, "clip_cov_ub": 5.0}}
    ours = differentiated(lambda: reduce(method.token_loss(batch), batch.mask_BT), batch)
    theirs = differentiated(lambda: verl_loss(batch, "clip_cov", "token-mean", settings), batch)
    assert (batch.columns["kept"] == 0).sum() > 2
    assert (covariance(batch)[batch.columns["kept"] == 0] > 0.05).all()
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_estimates_of_the_kl_to_a_reference(estimator: Literal["k1", "k2", "k3"]) -> None:
    from verl.trainer.ppo import core_algos

    method, of = GrpoKl(kl_estimator=estimator), step(MIXED)
    batch = mini_batch(method, of, method.signals(of, {})[0])
    theirs_BT = core_algos.kl_penalty(batch.logp_BT, batch.logp_reference_BT, estimator)
    ours, theirs = (differentiated((kl_BT * batch.mask_BT).sum, batch) for kl_BT in (method.kl(batch), theirs_BT))
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_truncated_importance_weights(level: Literal["token", "sequence"]) -> None:
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    of = step(MIXED)
    batch = mini_batch(get("mcpo"), of, get("mcpo").signals(of, {})[0])
    noise_BT = 0.3 * torch.randn(batch.mask_BT.shape, generator=torch.Generator().manual_seed(3)).double()
    sampler_BT = batch.logp_old_BT - noise_BT
    truncated = Train(correction=f"{level}-truncate", correction_high=1.2)
    ours_BT = corrections.columns(truncated, batch.logp_old_BT, sampler_BT, batch.mask_BT)[corrections.WEIGHT]
    theirs_BT, measured = compute_rollout_correction_weights(
        log_ratio=noise_BT * batch.mask_BT,
        response_mask=batch.mask_BT,
        rollout_is=level,
        rollout_is_threshold=truncated.correction_high,
    )
    torch.testing.assert_close(ours_BT, theirs_BT)
    assert 0 < measured["rollout_is_ratio_fraction_high"] < 1
