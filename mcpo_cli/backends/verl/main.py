"""The training process: `python -m mcpo_cli.backends.verl.main ATTEMPT_DIR OVERRIDE...`.

It ends itself and all its children when its parent process is gone.
"""

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
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

from mcpo_cli.backends.verl.launch import Channel
from mcpo_cli.backends.verl.processes import MARK, end
from mcpo_cli.errors import McpoError, RunFailed

QUEUE = "TransferQueueController"
"""TransferQueue's actor. Its name is the same for every run, so two runs in one cluster would mix their rollouts."""
LEAVING_SECONDS = 30.0
"""Seconds to wait for a finished run's actors to exit."""
JOINING_SECONDS = 1800.0
"""Seconds to wait for the machines of a Ray cluster: SLURM may start them minutes apart."""


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
        wait_until_alone()
        if config.trainer.nnodes > 1:
            gpus = config.trainer.nnodes * config.trainer.n_gpus_per_node
            wait_for_gpus(gpus, lambda text: Channel(Path(config.mcpo.attempt)).tell(text, None))
        base.run(self, config)

    return type("Runner", (base,), {"run": run})


def wait_until_alone() -> None:
    """Wait until no other run is in the Ray cluster; RunFailed if one still is after LEAVING_SECONDS."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while any(actor["name"] == QUEUE for actor in ray.util.list_named_actors(all_namespaces=True)):
        if time.monotonic() > deadline:
            raise RunFailed(
                "another verl run uses this Ray cluster, and TransferQueue supports one at a time",
                fix="wait until it ends, or cluster.ray_address=HOST:PORT of another cluster",
            )
        time.sleep(1)


def wait_for_gpus(gpus: int, tell: Callable[[str], None]) -> None:
    """Wait until `gpus` GPUs have joined the Ray cluster, calling `tell`; RunFailed after JOINING_SECONDS.

    verl itself raises at once if a GPU has not joined.
    """
    deadline = time.monotonic() + JOINING_SECONDS
    while (gpus_there := int(ray.cluster_resources().get("GPU", 0))) < gpus:
        if time.monotonic() > deadline:
            raise RunFailed(
                f"{gpus_there} of {gpus} GPUs (cluster.nodes x cluster.gpus) have joined the Ray cluster after "
                f"{JOINING_SECONDS / 60:.0f} minutes",
                fix="ray status  (lists the machines that did), or a lower cluster.nodes",
            )
        tell(f"waiting for machines: {gpus_there} of {gpus} GPUs have joined the Ray cluster")
        time.sleep(1)


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    end(os.environ[MARK])
    os._exit(1)


if __name__ == "__main__":
    main()
