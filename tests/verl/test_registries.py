"""Methods in verl's own registries (examples/verl_methods.py): verl computes the same with them as mcpo."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mcpo_cli.methods import get, reduce, registry
from mcpo_cli.testing import mini_batch, step
from mcpo_cli.testing.batches import LIMIT

pytestmark = pytest.mark.verl
CARRIED = {"bnpo", "cispo", "dr_grpo", "gmpo", "grpo", "gspo", "luspo", "ngrpo", "opo", "rloo", "sapo", "vespo"}


@pytest.fixture(scope="module")
def carried() -> list[str]:
    from examples import verl_methods

    return [name for name in registry() if verl_methods.fits(get(name))]


def test_methods_without_columns_or_memory_are_carried_and_mcpo_is_not(carried: list[str]) -> None:
    from examples import verl_methods

    assert set(carried) >= CARRIED
    assert not {*carried} & {"mcpo", "spo", "clip_cov", "dapo"}
    with pytest.raises(ValueError, match="backend=verl"):
        verl_methods.register(get("mcpo"))


@pytest.mark.parametrize("seed", range(3))
def test_advantages_and_loss_are_ours(carried: list[str], seed: int) -> None:
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn

    for name in carried:
        method, of = get(name), step(seed=seed)
        P, G = of.correct_PG.shape
        # verl's batch has the rollouts of a group in any order.
        order = torch.randperm(P * G, generator=torch.Generator().manual_seed(seed))
        mask_BT = of.mask_PGT.flatten(0, 1)
        reward_BT = torch.zeros(mask_BT.shape, dtype=torch.float64)
        reward_BT[:, 0] = of.reward_PG.flatten()
        index = np.array([f"prompt {i}" for i in range(P) for _ in range(G)], dtype=object)
        estimate = get_adv_estimator_fn(f"mcpo/{name}")
        found_BT, _ = estimate(reward_BT[order], mask_BT[order], index=index[order.numpy()], config=None)
        signals, _ = method.signals(of, {})
        advantage_BT = signals.advantage.flatten(0, 1).view(P * G, -1) * mask_BT
        torch.testing.assert_close(found_BT, advantage_BT[order], rtol=1e-9, atol=1e-12)

        batch = mini_batch(method, of, signals, seed=seed)
        expected = reduce(method.token_loss(batch), mask_BT)
        (wanted,) = torch.autograd.grad(expected, batch.logp_BT)
        whole = {
            "dp_size": 2,
            "batch_num_tokens": int(mask_BT.sum()),
            "global_batch_size": P * G,
            "loss_scale_factor": LIMIT,
        }
        calculate, config = get_policy_loss_fn(f"mcpo/{name}"), SimpleNamespace(global_batch_info=whole)
        # Two ranks with a micro-batch each; verl averages over ranks.
        parts = [
            calculate(
                old_log_prob=batch.logp_old_BT[part],
                log_prob=batch.logp_BT[part],
                advantages=found_BT[order.argsort()][part],
                response_mask=mask_BT[part],
                loss_agg_mode="token-mean",
                config=config,
                rollout_is_weights=None,
            )[0]
            for part in torch.arange(P * G).split(P * G // 2)
        ]
        value = sum(parts, torch.zeros(())) / 2
        torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-9, atol=1e-12, check_dtype=False)
        (gradient,) = torch.autograd.grad(value, batch.logp_BT)
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)
