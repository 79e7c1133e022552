"""The policy before the last gradient step (need `previous_policy`), for methods that compare with it.

Each rank keeps its share of the weights that are trained in main memory and in the checkpoint: 4 bytes a weight, over
all ranks. For a pass under that policy they change places with the engine's.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mcpo_cli.backends.verl import passes, queue, watch


class Previous:
    """The previous policy of all ranks.

    workers: verl's training workers. compute: their pass without gradients, which puts `log_probs` into the queue.
    """

    def __init__(self, workers: Any, compute: Callable[[Any], object]) -> None:
        self._workers, self._compute = workers, compute

    def remember(self) -> None:
        """Keep the weights of now; called before each gradient step."""
        watch.on_each_rank(self._workers, remember)

    def log_probs(self, batch: Any) -> None:
        """Add the log-probabilities of the sequences under the previous policy to the fields of `batch`."""
        chosen = batch.select_keys(batch.keys)
        chosen.extra_info = passes.log_probs(entropy=False)
        watch.on_each_rank(self._workers, swap)
        self._compute(chosen)
        watch.on_each_rank(self._workers, swap)
        batch.fields = queue.keep_as_previous(batch.keys)

    def save(self, folder: Path) -> None:
        """Write it into the folder of a checkpoint."""
        watch.on_each_rank(self._workers, partial(save, folder))

    def load(self, folder: Path) -> None:
        """Read what `save` wrote with as many ranks."""
        watch.on_each_rank(self._workers, partial(load, folder))


def remember(engine: Any) -> None:
    """Keep the weights that this rank has now."""
    engine.mcpo_previous = {name: share.to("cpu", copy=True) for name, share in _shares(engine)}


def swap(engine: Any) -> None:
    """Exchange this rank's weights with those that it keeps."""
    kept = engine.mcpo_previous
    for name, share in _shares(engine):
        now = share.to("cpu", copy=True)
        share.copy_(kept[name])
        kept[name] = now


def save(folder: Path, engine: Any) -> None:
    """Write what this rank keeps."""
    torch.save(engine.mcpo_previous, _file(folder))


def load(folder: Path, engine: Any) -> None:
    """Inverse of `save`."""
    engine.mcpo_previous = torch.load(_file(folder), weights_only=True)


def _shares(engine: Any) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in engine.module.named_parameters():
        if parameter.requires_grad:
            yield name, parameter.detach().to_local()


def _file(folder: Path) -> Path:
    world = torch.distributed
    return folder / f"previous_world_size_{world.get_world_size()}_rank_{world.get_rank()}.pt"
