"""What verl's engine is told of a pass over sequences: fields of a batch's `extra_info`."""

from typing import Any

from mcpo_cli.methods import Method

TEMPERATURE = 1.0
"""Of every log-probability and entropy, those of the rollout engine included (`logprobs_mode` in `overrides.py`).

`train.temperature` only decides how rollouts are drawn, as with the local engine. verl by itself trains the policy at
the temperature that it is sampled at.
"""


def log_probs(*, entropy: bool) -> dict[str, Any]:
    """Of a pass without gradients."""
    return {"calculate_entropy": entropy, "compute_loss": False, "temperature": TEMPERATURE}


def update(method: Method, sequences: int) -> dict[str, Any]:
    """Of one gradient step on that many sequences, on all ranks together."""
    return {
        "calculate_entropy": "current_entropy" in method.needs,
        "distillation_use_topk": False,
        "distillation_only": False,
        "global_batch_size": sequences,
        "mini_batch_size": sequences,
        "epochs": 1,
        "seed": 0,
        "dataloader_kwargs": {"shuffle": False},
        "temperature": TEMPERATURE,
    }
