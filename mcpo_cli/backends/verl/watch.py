"""The actors of Ray behind verl's trainer: whether they live, and what only they can do."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ray

from mcpo_cli.errors import RunFailed


def alive(trainer: Any) -> None:
    """A look at every actor that the trainer waits for: verl itself would wait for a dead one for ever.

    Raises:
        RunFailed: one has died.
    """
    from ray._private.state import actors

    for role, actor in _actors(trainer):
        state = actors(actor._actor_id.hex())
        if state and state["State"] == "DEAD":
            cause = re.search(r'error_message: "([^".\\\\]*)', str(state.get("DeathCause")))
            raise RunFailed(f"a process of verl died: {role} ({cause[1] if cause else 'Ray does not say why'})")


def on_each_rank(worker_group: Any, call: Callable[[Any], object]) -> None:
    """`call` with the training engine of each rank."""
    ray.get([worker.__ray_call__.remote(partial(_with_engine, call)) for worker in worker_group.workers])


def _with_engine(call: Callable[[Any], object], worker: Any) -> None:
    for role in worker.worker_dict.values():
        call(role.actor.engine)


def _actors(trainer: Any) -> Iterator[tuple[str, Any]]:
    for worker in trainer.agent_loop_manager.agent_loop_workers:
        yield "the one that makes prompts", worker
    for worker in trainer.reward_loop_manager.reward_loop_workers:
        yield "the one that grades", worker
    for replica in trainer.llm_server_manager.get_replicas():
        for server in replica.servers:
            yield "the one that samples", server
    for worker in trainer.actor_rollout_wg.workers:
        yield "the one that trains", worker
