"""One rank of verl's FSDP engine without Ray: loss and gradient of a recorded batch, for many methods and splits.

And how far log-probabilities depend on which sequences are packed together.

`python -m tests.verl.engine_process FOLDER SHARING`, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; each sequence is
shared by SHARING ranks. Reads `batch.pt` and `model/` of FOLDER; rank 0 writes `found.pt`.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine import EngineRegistry
from verl.workers.utils.padding import response_from_nested

from mcpo_cli.backends.verl import batches, passes, previous
from mcpo_cli.backends.verl.loss import FACTS, PREVIOUS, loss, merged
from mcpo_cli.backends.verl.overrides import Paths, overrides
from mcpo_cli.config.load import load
from tests.verl.cpu import flash

AS_ON_GPUS = (
    "++actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16",
    "actor_rollout_ref.model.enable_gradient_checkpointing=true",
)
"""What a run on GPUs has beside these settings, as far as a processor can compute it."""


def engine(folder: Path, *more: str, settings: tuple[str, ...] = ()) -> Any:
    """The engine of a run's actor, with the settings that a run has beside `settings`, and those of verl in `more`."""
    spec = load(["scale=verl-cpu", "cluster.attention=sdpa", *settings])[0]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", [*overrides(spec, Paths(folder, folder, str(folder / "model"))), *more])
    model, actor = omega_conf_to_dataclass(config.actor_rollout_ref.model), config.actor_rollout_ref.actor
    actor = omega_conf_to_dataclass(actor)
    built = EngineRegistry.new(
        model_type="language_model",
        backend=actor.engine.strategy,
        model_config=model,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    built.initialize()
    return built


def shares(sharing: int) -> tuple[str, ...]:
    """Settings with which that many ranks share each sequence; flash attention, which it needs, is made to be there."""
    flash.install()
    return (
        f"actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size={sharing}",
        f"++actor_rollout_ref.model.override_config.attn_implementation={flash.NAME}",
    )


def rows(batch: dict[str, Any], chosen: list[int]) -> TensorDict:
    """Some of the recorded sequences, as verl's queue hands them out."""
    nested = {name: [batch[name][i] for i in chosen] for name in ("prompts", "responses", "old_log_probs")}
    nested["input_ids"] = [torch.cat(pair) for pair in zip(nested["prompts"], nested["responses"], strict=True)]
    nested["position_ids"] = [torch.arange(len(ids)) for ids in nested["input_ids"]]
    nested["response_mask"] = [torch.ones_like(response) for response in nested["responses"]]
    nested["loss_mask"] = nested["response_mask"]
    nested |= {name: [values[i] for i in chosen] for name, values in batch["signals"].items()}
    fields = {name: torch.nested.as_nested_tensor(value, layout=torch.jagged) for name, value in nested.items()}
    return TensorDict({**fields, FACTS: batch["facts"][chosen]}, batch_size=len(chosen))


def measure(
    built: Any,
    batch: dict[str, Any],
    method: Any,
    split: dict[str, Any],
    chosen: list[int],
    sharing: int,
    *,
    step: bool = False,
) -> Any:
    """Loss, gradient by name, and what the loss reports, with the sequences `chosen` on this rank.

    step: whether the weights then take a step.
    """
    data = rows(batch, chosen)
    if "previous_policy" in method.needs:
        previous.swap(built)
        data[PREVIOUS] = log_probs(built, batch, split, chosen)
        previous.swap(built)
    told = passes.update(method, len(batch["responses"]))
    tu.assign_non_tensor(data, use_remove_padding=True, use_fused_kernels=False, **split, **told)
    with built.train_mode():
        built.optimizer_zero_grad()
        output = built.forward_backward_batch(data, partial(loss, method))
        trained = ((name, p) for name, p in built.module.named_parameters() if p.requires_grad)
        gradient = {name: p.grad.full_tensor().clone() for name, p in trained}
        if step:
            built.optimizer_step()
    total = torch.tensor(sum(output["loss"]))
    torch.distributed.all_reduce(total)
    reports = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(reports, output["metrics"]["mcpo"])
    # As verl reports it: the mean over ranks of the losses that were multiplied by their number.
    (sums,) = merged([report for of_rank in reports[::sharing] for report in of_rank], len(batch["responses"]))
    return float(total) / len(reports), gradient, sums


def log_probs(built: Any, batch: dict[str, Any], split: dict[str, Any], chosen: list[int]) -> torch.Tensor:
    """Those of the response tokens, ragged, by a pass without gradients."""
    data = rows(batch, chosen)
    tu.assign_non_tensor(data, use_remove_padding=True, use_fused_kernels=False, **split)
    tu.assign_non_tensor(data, **passes.log_probs(entropy=True))
    with built.eval_mode():
        output = built.infer_batch(data)["model_output"]
    return response_from_nested(output["log_probs"], data["response_mask"])


def drifts(built: Any, batch: dict[str, Any], method: Any, chosen: list[int]) -> dict[str, float]:
    """The largest change of a log-probability under the same weights, if the pass before packed alike or otherwise."""
    update = batch["splits"]["dynamic"]
    found = {}
    for packing, split in {"alike": update, "otherwise": batch["splits"]["all"]}.items():
        known = dict(zip(chosen, log_probs(built, batch, split, chosen).unbind(), strict=True))
        data = rows(batch | {"old_log_probs": known}, chosen)
        tu.assign_non_tensor(data, use_remove_padding=True, **update, **passes.update(method, len(known)))
        with built.train_mode():
            reports = built.forward_backward_batch(data, partial(loss, method))["metrics"]["mcpo"]
        found[packing] = max(report["drift"] for report in reports)
    return found


def main(folder: Path, sharing: int) -> None:
    """All methods and splits that the batch asks for."""
    initialize_global_process_group_ray()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    batch = torch.load(folder / "batch.pt", weights_only=False)
    shared = shares(sharing) if sharing > 1 else ()
    built, groups = engine(folder, *shared), ranks // sharing
    earlier = engine(folder, f"actor_rollout_ref.model.path={folder / 'previous'}", *shared)
    previous.remember(earlier)
    previous.save(folder, earlier)
    previous.load(folder, built)
    everything, group = list(range(len(batch["responses"]))), rank // sharing
    tokens = [len(response) for response in batch["responses"]]
    found: dict[Any, Any] = {"sharing": sharing}
    for label, method, recorded in batch["methods"]:
        for name, split in batch["splits"].items():
            found[label, name] = measure(built, batch | recorded, method, split, everything[group::groups], sharing)
        passing = batches.passing(everything, recorded["bears"], tokens, groups)
        size = len(passing) // groups
        mine = batches.shared([passing], tokens, groups)[group * size :][:size]
        found[label, "bearing"] = measure(built, batch | recorded, method, batch["splits"]["dynamic"], mine, sharing)
    (recorded,) = (each for each in batch["methods"] if each[0] == "mcpo")
    mine = everything[group::groups]
    found["drift float32"] = drifts(built, batch | recorded[2], recorded[1], mine)
    rounding = engine(folder, *AS_ON_GPUS, *shared)
    assert rounding._autocast_dtype == torch.bfloat16
    found["drift bfloat16"] = drifts(rounding, batch | recorded[2], recorded[1], mine)
    if rank == 0:
        torch.save(found, folder / "found.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
