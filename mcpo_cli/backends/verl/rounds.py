"""Samplers under verl: prompts by position, drawn round by round, instead of verl's data loader.

verl's data loader yields the training stream in order, and its buffer replaces dropped groups while others are
sampled: `sampler=uniform` and `sampler=refill`. Every other sampler decides which positions of the stream a round
samples, from its state and from the finished rounds of the step, as on the local engine (`backends.drawing`).
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils as tu

from mcpo_cli.backends.drawing import Drawing, TrainingStream
from mcpo_cli.backends.verl import batch, data
from mcpo_cli.backends.verl.queue import Buffer
from mcpo_cli.runs.journal import read_json, write_atomic
from mcpo_cli.samplers import State

FILE = "sampler.json"
"""File of a checkpoint: position in the stream, and the sampler's state."""


class Rounds(Buffer):
    """The buffer of a run whose sampler draws by position. It submits prompts while the trainer waits for its batch."""

    draws = True

    def restore(self, checkpoint: Path) -> None:
        """Continue after the step whose checkpoint is in this folder, or from the beginning if it has no such file."""
        spec, model = self._trainer.spec, Path(self._trainer.config.actor_rollout_ref.model.path)
        self._stream = TrainingStream(spec.task.problems(spec.train, data.tokens(model)), spec.seed)
        path = checkpoint / FILE
        found: dict[str, Any] = read_json(path) if path.exists() else {"cursor": 0, "state": {}}
        self._cursor: int = found["cursor"]
        self._state: State = found["state"]

    def save(self, checkpoint: Path) -> None:
        """Write the file that `restore` reads. Python writes floats so that reading them restores them exactly."""
        write_atomic(checkpoint / FILE, json.dumps({"cursor": self._cursor, "state": dict(self._state)}))

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """The batch of a global step; evaluations and probes use verl's buffer.

        Raises:
            RunFailed: as `Drawing.draw`.
        """
        if partition_id != "train":
            return super().sample(global_steps, partition_id, batch_size)
        drawing = Drawing(self._trainer.spec, self._stream, global_steps, self._cursor, self._state)
        while not drawing.is_full:
            found, metrics = super().sample(global_steps, partition_id, self._submit(drawing))
            groups = self._trainer.read(found.keys)
            drawing.add([sum(group.correct) / len(group.correct) for group in groups])
        self._cursor, self._state = drawing.cursor, drawing.state()
        return self._batch(drawing.batch), metrics

    def _submit(self, drawing: Drawing) -> int:
        """Submit the next round; returns its number of prompts."""
        trainer, problems, before = self._trainer, drawing.draw(), len(drawing.groups)
        spec, step = trainer.spec, trainer.global_steps
        rows = [data.row(spec, spec.task.source, "train", before + i, one) for i, one in enumerate(problems)]
        columns = batch.columns(rows)
        # Ids are unique in a run, and have no underscore, which separates the parts of a trajectory's key.
        columns["uid"] = np.array([f"step{step}prompt{before + i}" for i in range(len(rows))], dtype=object)
        submitted = tu.get_tensordict(columns)
        tu.assign_non_tensor_data(submitted, "global_steps", step)
        trainer._submit_batch_to_rollout(submitted)
        return len(rows)

    def _batch(self, chosen: Collection[int]) -> KVBatchMeta:
        """verl's description of the groups at the indices `chosen` of the step; the others are dropped."""
        dropped = {uid for uid, prompt in self._trainer.prompts.items() if prompt.order not in chosen}
        self._clear_groups("train", dropped)
        partition = self.partitions["train"]
        return KVBatchMeta(partition_id="train", keys=[*partition], tags=[*partition.values()])
