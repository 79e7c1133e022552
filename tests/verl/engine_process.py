"""One rank of verl's FSDP engine without Ray: loss and gradient of a recorded batch, for many methods and splits.

It also measures the dependence of log-probabilities on the packing of sequences.

`python -m tests.verl.engine_process FOLDER SHARING`, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; each sequence is
shared by SHARING ranks. Reads `batch.pt` and `model/` of FOLDER; rank 0 writes `found.pt`.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from verl.utils.distributed import initialize_global_process_group_ray

from mcpo_cli.backends.verl import batch as batches
from mcpo_cli.backends.verl import engine as engines
from mcpo_cli.backends.verl.loss import KEPT, kept_policies, merged
from mcpo_cli.config.load import load
from tests.verl import AS_ON_GPUS, fsdp
from tests.verl.cpu import flash


def engine(folder: Path, *more: str) -> Any:
    """The engine of a toy run's actor, see `fsdp.engine`."""
    return fsdp.engine(load(["scale=verl-cpu", "cluster.attention=sdpa"])[0], folder / "model", *more)


def shares(sharing: int) -> tuple[str, ...]:
    """Settings with which that many ranks share each sequence; installs the flash attention that this needs."""
    flash.install()
    return (
        f"actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size={sharing}",
        f"++actor_rollout_ref.model.override_config.attn_implementation={flash.NAME}",
    )


def measure(
    built: Any, batch: dict[str, Any], method: Any, split: dict[str, Any], chosen: list[int], sharing: int
) -> Any:
    """Loss, gradient by name, and the loss's metrics, with the sequences `chosen` on this rank."""
    data = fsdp.rows(batch, chosen)
    for policy in kept_policies(method):
        engines.swap(policy, built)
        data[KEPT[policy]] = fsdp.log_probs(built, batch, split, chosen)
        engines.swap(policy, built)
    with built.train_mode():
        output = fsdp.backward(built, data, method, split, len(batch["responses"]))
        gradient = fsdp.gradients(built)
    total = torch.tensor(sum(output["loss"]))
    torch.distributed.all_reduce(total)
    reports = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(reports, output["metrics"]["mcpo"])
    # As verl reports it: the mean over ranks of the losses times the number of ranks.
    (sums,) = merged([report for of_rank in reports[::sharing] for report in of_rank], len(batch["responses"]))
    return float(total) / len(reports), gradient, sums


def drifts(built: Any, batch: dict[str, Any], method: Any, chosen: list[int]) -> dict[str, float]:
    """The largest change of a log-probability under equal weights, if the pass before packed alike or differently."""
    update = batch["splits"]["dynamic"]
    found = {}
    for packing, split in {"alike": update, "otherwise": batch["splits"]["all"]}.items():
        known = dict(zip(chosen, fsdp.log_probs(built, batch, split, chosen).unbind(), strict=True))
        data = fsdp.rows(batch | {"old_log_probs": known}, chosen)
        with built.train_mode():
            reports = fsdp.backward(built, data, method, update, len(known))["metrics"]["mcpo"]
        found[packing] = max(report["drift"] for report in reports)
    return found


def main(folder: Path, sharing: int) -> None:
    """Compute all methods and splits of the batch."""
    initialize_global_process_group_ray()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    batch = torch.load(folder / "batch.pt", weights_only=False)
    shared = shares(sharing) if sharing > 1 else ()
    built, groups = engine(folder, *shared), ranks // sharing
    for policy in KEPT:
        other = engine(folder, f"actor_rollout_ref.model.path={folder / policy}", *shared)
        engines.remember(policy, other)
        engines.save(policy, folder, other)
        engines.load(policy, folder, built)
    everything, group = list(range(len(batch["responses"]))), rank // sharing
    tokens = [len(response) for response in batch["responses"]]
    found: dict[Any, Any] = {"sharing": sharing}
    for label, method, recorded in batch["methods"]:
        for name, split in batch["splits"].items():
            found[label, name] = measure(built, batch | recorded, method, split, everything[group::groups], sharing)
        passing = batches.select_trained(everything, recorded["bears"], tokens, groups)
        size = len(passing) // groups
        mine = batches.balance_ranks(passing, tokens, groups)[group * size :][:size]
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
