"""One rank of verl's FSDP engine without Ray, with the settings of a run: its actor, and passes of a recorded batch.

A recorded batch (`queued.py`) has lists with one ragged tensor per sequence: `prompts`, `responses`, `old_log_probs`,
and by name in `signals`; and `facts`, one row per sequence.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine import EngineRegistry
from verl.workers.utils.padding import response_from_nested

from mcpo_cli.backends.verl.engine import log_prob_pass, update_pass
from mcpo_cli.backends.verl.loss import FACTS, loss
from mcpo_cli.backends.verl.overrides import Paths, overrides, table
from mcpo_cli.config.schema import RunSpec


def engine(spec: RunSpec, model: Path, *more: str) -> Any:
    """The engine of a run's actor with the weights in `model`, with the settings of a run, then those in `more`.

    more: in Hydra's grammar, under verl's own names.
    """
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer", [*overrides(spec, table(spec, Paths(model.parent, model.parent, str(model)))), *more]
        )
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    built = EngineRegistry.new(
        model_type="language_model",
        backend=actor.engine.strategy,
        model_config=omega_conf_to_dataclass(config.actor_rollout_ref.model),
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    built.initialize()
    return built


def rows(batch: dict[str, Any], chosen: list[int]) -> TensorDict:
    """Some of the recorded sequences, in the form of verl's queue."""
    nested = {name: [batch[name][i] for i in chosen] for name in ("prompts", "responses", "old_log_probs")}
    nested["input_ids"] = [torch.cat(pair) for pair in zip(nested["prompts"], nested["responses"], strict=True)]
    nested["position_ids"] = [torch.arange(len(ids)) for ids in nested["input_ids"]]
    nested["response_mask"] = [torch.ones_like(response) for response in nested["responses"]]
    nested["loss_mask"] = nested["response_mask"]
    nested |= {name: [values[i] for i in chosen] for name, values in batch["signals"].items()}
    fields = {name: torch.nested.as_nested_tensor(value, layout=torch.jagged) for name, value in nested.items()}
    return TensorDict({**fields, FACTS: batch["facts"][chosen]}, batch_size=len(chosen))


def tell(built: Any, data: TensorDict, split: dict[str, Any], passing: dict[str, Any]) -> None:
    """Add the facts that verl's worker gives its engine: how `split` makes micro-batches, and `passing`."""
    packing = {"use_remove_padding": built.use_remove_padding}
    fused = {"use_fused_kernels": built.model_config.use_fused_kernels}
    tu.assign_non_tensor(data, **packing, **fused, **split, **passing)


def log_probs(built: Any, batch: dict[str, Any], split: dict[str, Any], chosen: list[int]) -> torch.Tensor:
    """Log-probabilities of the response tokens, ragged, by a pass without gradients; in main memory, as in verl."""
    data = rows(batch, chosen)
    tell(built, data, split, log_prob_pass(entropy=True))
    with built.eval_mode():
        output = built.infer_batch(data)["model_output"]
    return response_from_nested(output["log_probs"].cpu(), data["response_mask"])


def backward(
    built: Any, data: TensorDict, method: Any, split: dict[str, Any], sequences: int, loss_function: Any = None
) -> Any:
    """verl's result of the forward and backward pass of an update on that many sequences on all ranks together.

    Call it in `built.train_mode()`, which deletes the gradients at its end.
    """
    tell(built, data, split, update_pass(method, sequences))
    built.optimizer_zero_grad()
    return built.forward_backward_batch(data, loss_function or partial(loss, method))


def gradients(built: Any) -> dict[str, torch.Tensor]:
    """A copy of the whole gradient of each trained parameter, by its name."""
    trained = ((name, p) for name, p in built.module.named_parameters() if p.requires_grad)
    return {name: p.grad.full_tensor().clone() for name, p in trained}
