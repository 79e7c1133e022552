"""One rank of verl's FSDP engine with LoRA, without Ray: its loss and gradient at a step, its policy before and after.

`python -m tests.verl.lora_process FOLDER SHARING`, as `tests.verl.engine_process`; ranks share no sequences. It also
writes a checkpoint.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from verl.utils.distributed import initialize_global_process_group_ray

from mcpo_cli.backends.verl import checkpoint, engine
from mcpo_cli.config.load import load
from tests.verl import fsdp

TOY = ("scale=verl-cpu", "cluster.attention=sdpa")
SETTINGS = ("model.lora_rank=4", "model.lora_alpha=8", "train.lr=0.01", "train.lr_warmup_steps=0")
SEED = 7


def step(built: Any, batch: dict[str, Any], method: Any, mine: list[int]) -> tuple[float, dict[str, torch.Tensor]]:
    """Take a gradient step on all sequences, `mine` on this rank; returns its loss and gradient."""
    total, ranks = len(batch["responses"]), torch.distributed.get_world_size()
    with built.train_mode():
        output = fsdp.backward(built, fsdp.rows(batch, mine), method, batch["splits"]["dynamic"], total)
        gradient = fsdp.gradients(built)
        built.optimizer_step()
    loss = torch.tensor(sum(output["loss"]))
    torch.distributed.all_reduce(loss)
    return float(loss) / ranks, gradient


def main(folder: Path) -> None:
    """Compute everything that the test compares."""
    initialize_global_process_group_ray()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    batch = torch.load(folder / "batch.pt", weights_only=False)
    _, method, recorded = next(each for each in batch["methods"] if each[0] == "mcpo")
    batch, split = batch | recorded, batch["splits"]["dynamic"]
    mine = list(range(len(batch["responses"])))[rank::ranks]
    full = fsdp.engine(load(list(TOY))[0], folder / "model")
    built = fsdp.engine(load([*TOY, *SETTINGS])[0], folder / "model")
    engine.draw_lora(SEED, built)
    trained = [(name, p) for name, p in built.module.named_parameters() if p.requires_grad]
    found: dict[str, Any] = {"drawn": {name: p.detach().full_tensor().clone() for name, p in trained}}
    engine.remember("previous_policy", built)
    found["kept"] = sum(share.numel() for share in built.mcpo_kept["previous_policy"].values())
    found["before"] = fsdp.log_probs(built, batch, split, mine)
    found |= {"full": step(full, batch, method, mine), "lora": step(built, batch, method, mine)}
    found["after"] = fsdp.log_probs(built, batch, split, mine)
    found["moments"] = sum(state["exp_avg"].to_local().numel() for state in built.optimizer.state.values())
    engine.swap("previous_policy", built)
    found["swapped"] = fsdp.log_probs(built, batch, split, mine)
    engine.swap("previous_policy", built)
    built.save_checkpoint(local_path=str(checkpoint.folder(folder, 1) / "actor"), global_step=1)
    if rank == 0:
        torch.save(found, folder / "found.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
