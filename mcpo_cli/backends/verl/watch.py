"""The Ray actors of verl's trainer: checks that they live, and runs calls on them."""

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ray

from mcpo_cli.errors import RunFailed

QUEUE = "TransferQueueController"
"""TransferQueue's actor. Its name is the same for every run, so two runs in one cluster would mix their rollouts."""
LEAVING_SECONDS = 30.0
"""Seconds to wait for a finished run's actors to exit."""
JOINING_SECONDS = 1800.0
"""Seconds to wait for the machines of a Ray cluster: SLURM may start them minutes apart."""


def alone() -> None:
    """Wait until no other run is in the Ray cluster.

    Raises:
        RunFailed: another run is still there after LEAVING_SECONDS.
    """
    deadline = time.monotonic() + LEAVING_SECONDS
    while any(actor["name"] == QUEUE for actor in ray.util.list_named_actors(all_namespaces=True)):
        if time.monotonic() > deadline:
            raise RunFailed(
                "another verl run uses this Ray cluster, and TransferQueue supports one at a time",
                fix="wait until it ends, or cluster.ray_address=HOST:PORT of another cluster",
            )
        time.sleep(1)


def gathered(gpus: int, tell: Callable[[str], None]) -> None:
    """Wait until `gpus` GPUs have joined the Ray cluster; verl itself raises at once if one has not.

    tell: called with the progress.

    Raises:
        RunFailed: some are still missing after JOINING_SECONDS.
    """
    deadline = time.monotonic() + JOINING_SECONDS
    while (joined := int(ray.cluster_resources().get("GPU", 0))) < gpus:
        if time.monotonic() > deadline:
            raise RunFailed(
                f"{joined} of {gpus} GPUs (cluster.nodes x cluster.gpus) have joined the Ray cluster after "
                f"{JOINING_SECONDS / 60:.0f} minutes",
                fix="ray status  (lists the machines that did), or a lower cluster.nodes",
            )
        tell(f"waiting for machines: {joined} of {gpus} GPUs have joined the Ray cluster")
        time.sleep(1)


def alive(trainer: Any) -> None:
    """Check every actor that the trainer waits for; verl itself would wait forever for a dead one.

    Raises:
        RunFailed: one has died.
    """
    from ray._private.state import actors

    for role, actor in _actors(trainer):
        state = actors(actor._actor_id.hex())
        if state and state["State"] == "DEAD":
            cause = re.search(r'error_message: "([^".\\\\]*)', str(state.get("DeathCause")))
            raise RunFailed(f"a process of verl died: {role} ({cause[1] if cause else 'Ray gives no reason'})")


def uses_v2_runner(trainer: Any) -> bool:
    """Whether vLLM samples with its V2 model runner, which draws seeded samples quickly; V1 loops over them in Python.

    vLLM's line about it is below the level that verl lets it log.
    """
    server = trainer.llm_server_manager.get_replicas()[0].servers[0]
    return bool(ray.get(server.__ray_call__.remote(_uses_v2_runner)))


def _uses_v2_runner(server: Any) -> object:
    return server.engine.vllm_config.use_v2_model_runner


def on_each_rank(worker_group: Any, call: Callable[[Any], object]) -> None:
    """Run `call` with the training engine on each rank."""
    ray.get([worker.__ray_call__.remote(partial(_with_engine, call)) for worker in worker_group.workers])


def _with_engine(call: Callable[[Any], object], worker: Any) -> None:
    for role in worker.worker_dict.values():
        call(role.actor.engine)


def _actors(trainer: Any) -> Iterator[tuple[str, Any]]:
    for worker in trainer.agent_loop_manager.agent_loop_workers:
        yield "an agent loop worker", worker
    for worker in trainer.reward_loop_manager.reward_loop_workers:
        yield "a reward worker", worker
    for replica in trainer.llm_server_manager.get_replicas():
        for server in replica.servers:
            yield "a rollout server", server
    for worker in trainer.actor_rollout_wg.workers:
        yield "a training worker", worker
