"""The training process: `python -m mcpo_cli.backends.verl.main ATTEMPT_DIR OVERRIDE...`.

It ends itself and all its children when its parent process is gone.
"""

import importlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import hydra
import ray
from omegaconf import open_dict
from ray.exceptions import RayTaskError
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device

from mcpo_cli.backends.verl import processes, watch
from mcpo_cli.backends.verl.channel import Channel
from mcpo_cli.errors import McpoError


def main() -> None:
    """Train; a McpoError that ends training sets the exit code."""
    attempt, parent = Path(sys.argv.pop(1)), os.getppid()
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()

    @hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
    def train(config: Any) -> None:
        with open_dict(config):
            config.mcpo = {"attempt": str(attempt)}
        auto_set_device(config)
        validate_config(config, need_reference_policy(config), need_critic(config))
        run_ppo(config, task_runner_class=ray.remote(_runner()))

    try:
        train()
    except RayTaskError as error:
        if not isinstance(error.cause, McpoError):
            raise
        Channel(attempt).ended(error.cause)
        sys.exit(error.cause.exit_code)


def _runner() -> type:
    """verl's task runner (an actor), with our trainer registered."""
    base = TaskRunnerV1.__ray_metadata__.modified_class

    def run(self: Any, config: Any) -> None:
        importlib.import_module("mcpo_cli.backends.verl.trainer")  # registers it
        watch.alone()
        if config.trainer.nnodes > 1:
            gpus = config.trainer.nnodes * config.trainer.n_gpus_per_node
            watch.gathered(gpus, lambda text: Channel(Path(config.mcpo.attempt)).tell(text, None))
        base.run(self, config)

    return type("Runner", (base,), {"run": run})


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    processes.end(os.environ[processes.MARK])
    os._exit(1)


if __name__ == "__main__":
    main()
