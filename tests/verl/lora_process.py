"""One rank of verl's FSDP engine with LoRA, without Ray: its loss and gradient before and its policy after a step.

`python -m tests.verl.lora_process FOLDER SHARING`, as `tests.verl.engine_process`; ranks share no sequences. Writes a
checkpoint, too.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from verl.utils.distributed import initialize_global_process_group_ray

from mcpo_cli.backends.verl import checkpoint, lora, previous
from tests.verl.engine_process import engine, log_probs, measure

SETTINGS = ("model.lora_rank=4", "model.lora_alpha=8", "train.lr=0.01", "train.lr_warmup_steps=0")
SEED = 7


def main(folder: Path) -> None:
    """Everything that the test compares."""
    initialize_global_process_group_ray()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    batch = torch.load(folder / "batch.pt", weights_only=False)
    _, method, recorded = next(each for each in batch["methods"] if each[0] == "mcpo")
    batch, split = batch | recorded, batch["splits"]["dynamic"]
    mine = list(range(len(batch["responses"])))[rank::ranks]
    full, built = engine(folder), engine(folder, settings=SETTINGS)
    found: dict[str, Any] = {"full": measure(full, batch, method, split, mine, 1)[:2]}
    lora.draw(SEED, built)
    found["drawn"] = {
        name: p.detach().full_tensor().clone() for name, p in built.module.named_parameters() if p.requires_grad
    }
    previous.remember(built)
    found["kept"] = sum(share.numel() for share in built.mcpo_previous.values())
    found["before"] = log_probs(built, batch, split, mine)
    found["lora"] = measure(built, batch, method, split, mine, 1, step=True)[:2]
    found["after"] = log_probs(built, batch, split, mine)
    found["moments"] = sum(state["exp_avg"].to_local().numel() for state in built.optimizer.state.values())
    previous.swap(built)
    found["swapped"] = log_probs(built, batch, split, mine)
    previous.swap(built)
    built.save_checkpoint(local_path=str(checkpoint.folder(folder, 1) / "actor"), global_step=1)
    if rank == 0:
        torch.save(found, folder / "found.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
