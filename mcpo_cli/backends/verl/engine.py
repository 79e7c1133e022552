"""verl's actors: checks that they are alive, calls on each rank's training engine, the effect of rounding on a step.

Methods that need `previous_policy` or `reference_policy` compare with another policy than the trained one. Each rank
keeps its share of that policy's weights in main memory and in checkpoints: 4 bytes per weight over all ranks.
"""

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import ray
import torch
from torch import Tensor
from torch.distributed.tensor import distribute_tensor

from mcpo_cli.backends.verl import queue
from mcpo_cli.backends.verl.checkpoint import LORA_A
from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import Method

Returned = TypeVar("Returned")
BEFORE = "before_the_step"
"""The name under which ranks keep the weights before a step (`Rounding`)."""
TEMPERATURE = 1.0
"""Temperature of every log-probability and entropy, also of the rollout engine (`logprobs_mode` in `overrides.py`).

As with the local engine, `train.temperature` only decides how rollouts are sampled; verl by itself trains the policy at
that temperature.
"""


def log_prob_pass(*, entropy: bool) -> dict[str, Any]:
    """A batch's `extra_info` for a pass without gradients."""
    return {"calculate_entropy": entropy, "compute_loss": False, "temperature": TEMPERATURE}


def update_pass(method: Method, sequences: int) -> dict[str, Any]:
    """A batch's `extra_info` for one gradient step on that many sequences, on all ranks together."""
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


def on_each_rank(worker_group: Any, call: Callable[[Any], Returned]) -> list[Returned]:
    """Run `call` with the training engine on each rank; returns its results in the order of the ranks."""
    results: list[Returned] = ray.get(
        [worker.__ray_call__.remote(partial(_with_engine, call)) for worker in worker_group.workers]
    )
    return results


def _with_engine(call: Callable[[Any], Returned], worker: Any) -> Returned:
    # mcpo has no critic and no reference worker, so the only worker trains the policy.
    (role,) = worker.worker_dict.values()
    return call(role.actor.engine)


def set_learning_rate(rate: float, engine: Any) -> None:
    """Set the rate of the next gradient step; verl's scheduler moves once per mini-batch, ours once per global step."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def remember(policy: str, engine: Any) -> None:
    """Keep this rank's current weights as the weights of `policy`, such as `previous_policy`."""
    kept_weights = {name: share.to("cpu", copy=True) for name, share in _shares(engine)}
    engine.__dict__.setdefault("mcpo_kept", {})[policy] = kept_weights


def swap(policy: str, engine: Any) -> None:
    """Exchange this rank's weights with the weights kept as `policy`, for a pass under it."""
    kept_weights = engine.mcpo_kept[policy]
    for name, share in _shares(engine):
        current_share = share.to("cpu", copy=True)
        share.copy_(kept_weights[name])
        kept_weights[name] = current_share


def go_half_way(policy: str, engine: Any) -> None:
    """Put this rank's weights half-way between the ones kept as `policy` and the current ones, which are kept too."""
    engine.mcpo_current = {name: share.to("cpu", copy=True) for name, share in _shares(engine)}
    for name, share in _shares(engine):
        share.copy_((engine.mcpo_kept[policy][name] + engine.mcpo_current[name]) / 2)


def return_from_half_way(policy: str, engine: Any) -> None:
    """Undo `go_half_way`, and forget `policy`."""
    current_weights = engine.__dict__.pop("mcpo_current")
    for name, share in _shares(engine):
        share.copy_(current_weights[name])
    del engine.mcpo_kept[policy]


def draw_lora(seed: int, engine: Any) -> None:
    """Draw LoRA's matrices A (see `local/lora.py`) from `seed`, with peft's distribution, for any number of ranks.

    peft draws them without a seed. Call it on all ranks; it has no effect without LoRA.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, share in engine.module.named_parameters():
        if name.endswith(LORA_A):
            drawn_RI = torch.empty(share.shape)
            torch.nn.init.kaiming_uniform_(drawn_RI, a=math.sqrt(5), generator=generator)
            # Every rank has drawn the same matrix, so ranks do not have to send it.
            shard = distribute_tensor(drawn_RI.to(share.dtype), share.device_mesh, share.placements, src_data_rank=None)
            share.data.copy_(shard)


def is_finite(engine: Any) -> bool:
    """True if all weights of this rank are finite."""
    return all(bool(share.isfinite().all()) for _, share in _shares(engine))


def save(policy: str, folder: Path, engine: Any) -> None:
    """Write the weights that are kept as `policy` into the folder of a checkpoint."""
    torch.save(engine.mcpo_kept[policy], _file(policy, folder))


def load(policy: str, folder: Path, engine: Any) -> None:
    """Read the file that `save` wrote with the same number of ranks."""
    engine.__dict__.setdefault("mcpo_kept", {})[policy] = torch.load(_file(policy, folder), weights_only=True)


def _shares(engine: Any) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in engine.module.named_parameters():
        if parameter.requires_grad:
            yield name, parameter.detach().to_local()


def _file(policy: str, folder: Path) -> Path:
    world = torch.distributed
    return folder / f"{policy.removesuffix('_policy')}_world_size_{world.get_world_size()}_rank_{world.get_rank()}.pt"


def uses_v2_runner(trainer: Any) -> bool:
    """True if vLLM samples with its V2 model runner, which draws seeded samples quickly; V1 loops over them in Python.

    vLLM logs this below the level that verl sets.
    """
    server = trainer.llm_server_manager.get_replicas()[0].servers[0]
    return bool(ray.get(server.__ray_call__.remote(lambda worker: worker.engine.vllm_config.use_v2_model_runner)))


def check_alive(trainer: Any) -> None:
    """Raise RunFailed if an actor that the trainer waits for has died; verl itself would wait forever."""
    from ray._private.state import actors

    for role, actor in _actors(trainer):
        state = actors(actor._actor_id.hex())
        if state and state["State"] == "DEAD":
            cause = re.search(r'error_message: "([^".\\\\]*)', str(state.get("DeathCause")))
            raise RunFailed(f"a process of verl died: {role} ({cause[1] if cause else 'Ray gives no reason'})")


def _actors(trainer: Any) -> Iterator[tuple[str, Any]]:
    replicas = trainer.llm_server_manager.get_replicas()
    yield from (("an agent loop worker", worker) for worker in trainer.agent_loop_manager.agent_loop_workers)
    yield from (("a reward worker", worker) for worker in trainer.reward_loop_manager.reward_loop_workers)
    yield from (("a rollout server", server) for replica in replicas for server in replica.servers)
    yield from (("a training worker", worker) for worker in trainer.actor_rollout_wg.workers)


class Rounding:
    """The part of the change of log-probabilities over a gradient step that is rounding to bfloat16.

    Begins before a gradient step of `trainer` (verl's) on the sequences of `batch`; `over_step` ends after it. It is
    measured once per run, over its first gradient step, for the price of two passes without gradients.

    The local engine compares with a pass in float32 (`local/rounding.py`), which flash attention does not compute. Here
    the weights are also put half-way between their values before and after the step. With l(0), l(1/2) and l(1) for the
    log-probabilities of the same sequences, packed alike, the second difference l(1) - 2 l(1/2) + l(0) excludes the
    step's own change, as far as that is linear in the step. Roundings of the three are independent: each has the
    variance s^2, the second difference 6 s^2, and the change l(1) - l(0) has 2 s^2 from them.
    """

    def __init__(self, trainer: Any, batch: Any) -> None:
        self._trainer, self._batch = trainer, batch
        trainer.on_each_rank(partial(remember, BEFORE))
        self._before = queue.old_log_probs(batch.keys)

    def over_step(self) -> dict[str, float]:
        """See `rounding_and_drift`; afterwards the weights are as the step has left them."""
        after, on_each_rank = self._log_probs(), self._trainer.on_each_rank
        on_each_rank(partial(go_half_way, BEFORE))
        half_way = self._log_probs()
        on_each_rank(partial(return_from_half_way, BEFORE))
        return rounding_and_drift(self._before, half_way, after)

    def _log_probs(self) -> Tensor:
        selection = self._batch.select_keys(self._batch.keys)
        selection.extra_info = log_prob_pass(entropy=False)
        self._trainer.log_probs(selection)
        return queue.newest_log_probs(selection.keys).values()


def rounding_and_drift(before: Tensor, half_way: Tensor, after: Tensor) -> dict[str, float]:
    """Root mean squares over tokens, nats, of the parts of the change from `before` to `after`: log-probabilities.

    `sanity/rounding_after_step`: of rounding. `sanity/drift_after_step`: of the policy's own change, 0 if rounding is
    the larger part of the measured change.
    """
    before, half_way, after = before.double(), half_way.double(), after.double()
    rounding = float((after - 2 * half_way + before).square().mean()) / 3
    change = float((after - before).square().mean())
    return {
        "sanity/rounding_after_step": math.sqrt(rounding),
        "sanity/drift_after_step": math.sqrt(max(change - rounding, 0.0)),
    }
