"""Methods of the zoo against TRL's own loss functions, executed on random batches: values and gradients."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mcpo_cli.methods import Step, TokenBatch, get, reduce
from mcpo_cli.testing import mini_batch, step
from mcpo_cli.testing.batches import LIMIT

pytestmark = pytest.mark.slow
SEEDS = range(5)
MIXED = (1, 2, 3, 3)

LOSSES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("grpo", {}, "grpo", {}),
    ("dapo", {"aggregation": "token-mean"}, "dapo", {"epsilon_high": 0.28}),
    ("dr_grpo", {}, "dr_grpo", {}),
    ("gspo", {}, "grpo", {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4}),
    ("luspo", {}, "luspo", {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4}),
    ("cispo", {}, "cispo", {"epsilon_high": 5.0}),
    ("sapo", {}, "sapo", {}),
    ("vespo", {}, "vespo", {}),
    ("top_entropy", {}, "dapo", {"epsilon_high": 0.28, "top_entropy_quantile": 0.2}),
    ("gmpo", {}, "gmpo", {"epsilon_low": 0.4, "epsilon_high": 0.4}),
    ("grpo_kl", {"kl_beta": 0.1}, "grpo", {"beta": 0.1, "use_bias_correction_kl": False}),
    ("grpo_kl", {"kl_beta": 0.1, "kl_estimator": "unbiased"}, "grpo", {"beta": 0.1, "use_bias_correction_kl": True}),
    ("dual_clip", {"cap": 1.3, "clip_high": 0.1}, "grpo", {"delta": 1.3, "epsilon_high": 0.1}),
    ("rloo", {"ratio": "sequence-sum"}, "rloo", {}),
]
"""Method, its options, TRL's `loss_type` (or another trainer's name), and TRL's settings."""


@pytest.mark.parametrize(("name", "options", "loss_type", "settings"), LOSSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_values_and_gradients(
    name: str, options: dict[str, Any], loss_type: str, settings: dict[str, Any], seed: int
) -> None:
    for found, expected in zip(*both(name, options, loss_type, settings, seed), strict=True):
        # TRL's temperatures of `sapo` are float32.
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def both(
    name: str, options: dict[str, Any], loss_type: str, settings: dict[str, Any], seed: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Value and gradient with respect to the log-probabilities, ours and TRL's."""
    of, method = step(MIXED, seed=seed), get(name, **options)
    batch = mini_batch(method, of, method.signals(of, {})[0], seed=seed + 10)
    # TRL masks tokens by entropy in its loss; ours have no advantage, so it gets that of their rollout.
    advantage_B = method.signals(of, {})[0].advantage_PG.flatten()
    ours = reduce(method.token_loss(batch), batch.mask_BT)
    theirs = trl_loss(batch, of, advantage_B, loss_type, settings)
    return differentiated(ours, batch), differentiated(theirs, batch)


def differentiated(value: Tensor, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    (gradient_BT,) = torch.autograd.grad(value, batch.logp_BT, retain_graph=True)
    return value.detach(), gradient_BT * batch.mask_BT


def trl_loss(batch: TokenBatch, of: Step, advantage_B: Tensor, loss_type: str, settings: dict[str, Any]) -> Tensor:
    """The loss of the batch by `_compute_loss` of TRL's trainer, which has settings but no model and no data."""
    from trl import GRPOConfig, GRPOTrainer, RLOOTrainer
    from trl.experimental.gmpo import GMPOTrainer

    assert of.entropy_PGT is not None
    entropy_BT, mask_BT = of.entropy_PGT.flatten(0, 1), batch.mask_BT.double()
    trainer = {"gmpo": GMPOTrainer, "rloo": RLOOTrainer}.get(loss_type, GRPOTrainer)
    defaults = {name: field.default for name, field in GRPOConfig.__dataclass_fields__.items()}
    alone = SimpleNamespace(
        num_processes=1,
        reduce=lambda value, **_: value,
        gather=lambda value: value,
        pad_across_processes=lambda value, **_: value,
    )
    own: dict[str, Any] = {
        "accelerator": alone,
        "args": SimpleNamespace(**defaults | {"steps_per_generation": 1} | settings),
        "model": SimpleNamespace(training=True),
        "loss_type": loss_type,
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "beta": 0.0,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "aux_loss_enabled": False,
        "max_completion_length": LIMIT,
        "current_gradient_accumulation_steps": 1,
        "_entropy_bonus_enabled": False,
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "get_gamma_weights": GRPOTrainer.get_gamma_weights,
        "_get_per_token_logps_and_entropies": lambda *_, **__: (batch.logp_BT, entropy_BT, None),
    }
    self = SimpleNamespace(**own | settings)
    self.get_high_entropy_mask = lambda *given: GRPOTrainer.get_high_entropy_mask(self, *given)
    nothing = torch.zeros(len(mask_BT), 0)
    inputs = {
        "prompt_ids": nothing,
        "prompt_mask": nothing,
        "completion_ids": mask_BT,
        "completion_mask": mask_BT,
        "advantages": advantage_B,
        "old_per_token_logps": batch.logp_old_BT,
        "ref_per_token_logps": batch.logp_reference_BT,
        "old_logps": (batch.logp_old_BT * mask_BT).sum(-1),
        "num_items_in_batch": mask_BT.sum(),
    }
    value: Tensor = trainer._compute_loss(self, None, inputs)
    return value
