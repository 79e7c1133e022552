"""verl's queue (TransferQueue): its buffer of trajectories, reading them, and the fields that the loss reads."""

import json
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import response_from_nested, response_to_nested

from mcpo_cli.backends import corrections, measure
from mcpo_cli.backends.checks import NotFinite
from mcpo_cli.backends.drawing import Drawing, TrainingStream
from mcpo_cli.backends.graded import FEWEST, Graded
from mcpo_cli.backends.verl import batch, data
from mcpo_cli.backends.verl.batch import Group, MethodOutput, Prompt, index_of, uid_of
from mcpo_cli.backends.verl.loss import FACTS, KEPT, column_field, facts
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.errors import RunFailed
from mcpo_cli.grading import Grade
from mcpo_cli.methods import Method, Step
from mcpo_cli.prompt_samplers import Refill, State
from mcpo_cli.runs.journal import read_json, write_atomic

POLL_SECONDS = 0.1  # verl's default of 2 s would be most of a small model's step
WATCH_SECONDS = 10.0  # between two looks at the actors
SAMPLER = "sampler.json"
"""File of a checkpoint: position in the stream, and the state of a sampler that draws by position."""


class Buffer(ReplayBuffer):
    """verl's replay buffer for our trainer; with `sampler=refill` it applies the method's filter.

    The trainer gets the ids of finished groups that are discarded (`discard`), and checks that all actors are alive
    (`check_alive`) every WATCH_SECONDS.
    """

    draws = False
    """True if it submits the prompts of the training batch itself, instead of verl's data loader."""

    def __init__(self, trainer: Any) -> None:
        spec, refills = trainer.spec, isinstance(trainer.spec.sampler, Refill) and not self.draws
        super().__init__(
            poll_interval=POLL_SECONDS,
            trainer_mode="sync",
            trainer_config={},
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs={},
            refill_fn=trainer._add_prompts_to_generate,
            filter_groups_metric="acc" if refills else None,
            train_batch_size=spec.train.prompts,
            gen_batch_size=1 if refills else spec.train.prompts,
        )
        self._trainer, self._watched = trainer, time.monotonic()

    def restore(self, checkpoint: Path) -> None:
        """Continue after the step whose checkpoint is in this folder; here verl's data loader does so."""

    def save(self, checkpoint: Path) -> None:
        """Write the file that `restore` reads."""

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        # verl would silently continue with the rest of the group.
        if failed_keys := self.failure_keys[partition_id]:
            raise RunFailed(f"step {global_steps}: sampling or grading raised an error for {len(failed_keys)} prompts")
        return super()._terminal_eviction_reasons(global_steps, partition_id)

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        # verl would drop all groups of equal verdicts, and take an answer that could not be graded for a wrong one.
        if partition_id != "train" or self.filter_groups_metric is None:
            return set(), Counter()
        finished_ids, cache = self.finished_keys[partition_id], self._dapo_classification_cache[partition_id]
        for uid in cache.keys() - finished_ids:
            del cache[uid]
        new_keys = [key for key in self.partitions[partition_id] if uid_of(key) in finished_ids - cache.keys()]
        for uid, p in accuracies(new_keys, partition_id).items():
            cache[uid] = None if self._trainer.spec.method.keeps(p) and not math.isnan(p) else p
        dropped_accuracies = {uid: p for uid, p in cache.items() if p is not None}
        return set(dropped_accuracies), Counter(dropped_accuracies.values())

    def _select_prompt_uids(
        self, partition_id: str, sampleable_keys: set[str], batch_size: int
    ) -> tuple[Any, Any, Any]:
        # verl would choose by its set of random ids. The first groups of the stream that qualify are the same,
        # whichever prompts it happened to submit.
        uids, partition, steps = super()._select_prompt_uids(partition_id, sampleable_keys, len(sampleable_keys))
        if partition_id == "train":
            uids = sorted(uids, key=lambda uid: self._trainer.prompts[uid].order)
        return uids[:batch_size], partition, steps

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        if partition_id == "train" and uids:
            self._trainer.discard(uids)
        super()._clear_groups(partition_id, uids)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if time.monotonic() - self._watched > WATCH_SECONDS:
            self._trainer.check_alive()
            self._watched = time.monotonic()
        return super()._wait_for_next_poll(partition_id, last_debug_time)


class Rounds(Buffer):
    """The buffer of a run whose sampler draws by position. It submits prompts while the trainer waits for its batch.

    verl's data loader yields the training stream in order, and its buffer replaces dropped groups while others are
    sampled: `sampler=uniform` and `sampler=refill`. Every other sampler decides which positions of the stream a round
    samples, from its state and from the finished rounds of the step, as on the local engine (`backends.drawing`); so
    does `refill` with `cluster.deterministic`.
    """

    draws = True

    def restore(self, checkpoint: Path) -> None:
        """Continue after the step whose checkpoint is in this folder, or from the beginning if it has no such file."""
        spec, model = self._trainer.spec, Path(self._trainer.config.actor_rollout_ref.model.path)
        ids = data.prompt_ids(model, spec.task)
        problems = spec.task.problems(spec.train, lambda messages: len(ids(messages)))
        self._stream = TrainingStream(problems, spec.seed)
        path = checkpoint / SAMPLER
        record: dict[str, Any] = read_json(path) if path.exists() else {"cursor": 0, "state": {}}
        self._cursor: int = record["cursor"]
        self._state: State = record["state"]

    def save(self, checkpoint: Path) -> None:
        """Write the file that `restore` reads. Python writes floats so that reading them restores them exactly."""
        write_atomic(checkpoint / SAMPLER, json.dumps({"cursor": self._cursor, "state": dict(self._state)}))

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """The batch of a global step; evaluations and probes use verl's buffer.

        Raises:
            RunFailed: as `Drawing.draw`.
        """
        if partition_id != "train":
            return super().sample(global_steps, partition_id, batch_size)
        drawing = Drawing(self._trainer.spec, self._stream, global_steps, self._cursor, self._state)
        while not drawing.is_full:
            batch, metrics = super().sample(global_steps, partition_id, self._submit(drawing))
            groups = self._trainer.read(batch.keys)
            graded_counts = [sum(group.graded) for group in groups]
            correct_counts = [sum(group.correct) for group in groups]
            drawing.add([c / max(n, 1) for c, n in zip(correct_counts, graded_counts, strict=True)], graded_counts)
        self._cursor, self._state = drawing.cursor, drawing.state()
        return self._batch(drawing.batch), metrics

    def _submit(self, drawing: Drawing) -> int:
        """Submit the next round; returns its number of prompts."""
        trainer, problems, start = self._trainer, drawing.draw(), len(drawing.groups)
        spec, step = trainer.spec, trainer.global_steps
        rows = [data.row(spec, spec.task.source, "train", start + i, problem) for i, problem in enumerate(problems)]
        columns = batch.columns(rows)
        # Ids are unique in a run, and have no underscore, which separates the parts of a trajectory's key.
        columns["uid"] = np.array([f"step{step}prompt{start + i}" for i in range(len(rows))], dtype=object)
        prompts = tu.get_tensordict(columns)
        tu.assign_non_tensor_data(prompts, "global_steps", step)
        trainer._submit_batch_to_rollout(prompts)
        return len(rows)

    def _batch(self, indices: Collection[int]) -> KVBatchMeta:
        """verl's description of the groups at these indices of the step; the other groups are dropped."""
        dropped_uids = {uid for uid, prompt in self._trainer.prompts.items() if prompt.order not in indices}
        self._clear_groups("train", dropped_uids)
        partition = self.partitions["train"]
        return KVBatchMeta(partition_id="train", keys=[*partition], tags=[*partition.values()])


def accuracies(keys: Collection[str], partition: str) -> dict[str, float]:
    """The accuracy of each prompt of the trajectories `keys`, by its id; NaN with fewer than FEWEST graded rollouts."""
    if not keys:
        return {}
    extras = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=["extra_fields"])["extra_fields"]
    statuses: dict[str, list[str]] = {}
    for key, extra in zip(keys, list(extras), strict=True):
        statuses.setdefault(uid_of(key), []).append(getattr(extra, "data", extra)["reward_extra_info"]["status"])
    verdicts = {uid: [status for status in group if status != "infra_error"] for uid, group in statuses.items()}
    return {
        uid: group.count("correct") / len(group) if len(group) >= FEWEST else math.nan
        for uid, group in verdicts.items()
    }


def read(keys: Iterable[str], partition: str, prompts: Mapping[str, Prompt]) -> list[Group]:
    """The groups of the trajectories `keys`, in the order of their prompts.

    Raises:
        NotFinite: the rollout engine's log-probability of a token is NaN or infinite, as the policy's logits are.
    """
    ordered_keys = sorted(keys, key=lambda key: index_of(key, prompts))
    fields = ["responses", "rm_scores", "rollout_log_probs", "extra_fields"]
    table = tq.kv_batch_get(keys=ordered_keys, partition_id=partition, select_fields=fields)
    columns = (*(table[field].unbind() for field in fields[:3]), list(table["extra_fields"]))
    groups: dict[str, Group] = {}
    for key, tokens, score, logp, extra in zip(ordered_keys, *columns, strict=True):
        uid = uid_of(key)
        group = groups.setdefault(uid, Group(prompts[uid], [], [], [], [], []))
        group.tokens.append(tokens)
        group.reward.append(float(score.sum()))
        report = getattr(extra, "data", extra)["reward_extra_info"]
        group.grades.append(Grade(report["status"], report["answer"] or None, report["detail"]))
        if not logp.isfinite().all():
            raise NotFinite("the log-probabilities of the policy are NaN or infinite")
        group.logp.append(float(logp.double().sum()))
        group.entropy.append(math.nan)
    return list(groups.values())


def with_entropy(groups: Sequence[Group], keys: Sequence[str], prompts: Mapping[str, Prompt]) -> list[Group]:
    """`groups`, whose trajectories are `keys`, with the entropies that the trainer has computed."""
    ordered_keys = sorted(keys, key=lambda key: index_of(key, prompts))
    table = tq.kv_batch_get(keys=ordered_keys, partition_id="train", select_fields=["entropy"])
    means = iter(float(entropy_T.double().mean()) for entropy_T in table["entropy"].unbind())
    return [replace(group, entropy=list(islice(means, len(group.tokens)))) for group in groups]


def padded(field: str, keys: Sequence[str], prompts: Mapping[str, Prompt], length_PG: Tensor) -> Tensor:
    """A field with one number per token, padded to PGT; `keys` are all trajectories of some groups."""
    ordered_keys = sorted(keys, key=lambda key: index_of(key, prompts))
    rows = tq.kv_batch_get(keys=ordered_keys, partition_id="train", select_fields=[field])[field].unbind()
    padded_BT = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    return padded_BT.view(*length_PG.shape, -1)


def step(
    spec: RunSpec, groups: Sequence[Group], graded: Graded, keys: Sequence[str], prompts: Mapping[str, Prompt]
) -> Step:
    """The groups, whose trajectories are `keys`, as the `Step` that methods take; `graded`: the same as tensors."""
    needs, answers = spec.method.needs, [[grade.answer for grade in group.grades] for group in groups]

    def tokens(field: str) -> Tensor:
        return padded(field, keys, prompts, graded.length_PG)

    return Step(
        reward_PG=graded.reward_PG,
        correct_PG=torch.tensor([group.seen for group in groups]),
        length_PG=graded.length_PG,
        prompt_P=torch.tensor([problem.number for problem in graded.problems]),
        max_response=spec.train.max_response,
        # The trainer's log-probabilities, from which importance ratios are computed.
        logp_PGT=tokens("old_log_probs") if "logp" in needs else None,
        entropy_PGT=tokens("entropy") if "entropy" in needs else None,
        answer_PG=torch.tensor(measure.answer_classes(answers)) if "answers" in needs else None,
    )


def old_log_probs(keys: Sequence[str]) -> Tensor:
    """Log-probabilities of the tokens of the trajectories `keys`, in one row, under the policy before the update."""
    rows = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["old_log_probs"])["old_log_probs"].unbind()
    return torch.cat(list(rows))


def newest_log_probs(keys: Sequence[str]) -> Tensor:
    """Log-probabilities from the last pass over the trajectories `keys`, ragged."""
    table = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["log_probs", "response_mask"])
    log_probs: Tensor = response_from_nested(table["log_probs"], table["response_mask"])
    return log_probs


def put_under(policy: str, keys: Sequence[str]) -> list[str]:
    """Store the `newest_log_probs` of the trajectories `keys` as log-probabilities under `policy`, one of KEPT.

    Returns the names of all their fields: verl's passes read the fields that a batch names.
    """
    field = {KEPT[policy]: newest_log_probs(keys)}
    metadata = tq.kv_batch_put(keys=keys, partition_id="train", fields=TensorDict(field, batch_size=len(keys)))
    return list(metadata.fields)


def fields(method: Method, output: MethodOutput, indices: Sequence[tuple[int, int]]) -> TensorDict:
    """Inputs of the loss for the trajectories at `indices` (prompt, rollout): advantages, columns, facts."""
    signals, length_PG, totals = output.signals, output.length_PG, output.totals
    size = len(length_PG) // len(totals)
    rows = [facts(method, signals, index, totals[index[0] // size], output.used_PG) for index in indices]
    columns = {column_field(name): _ragged(signals.columns[name], length_PG, indices) for name in method.token_columns}
    advantages = _ragged(signals.advantage, length_PG, indices)
    return TensorDict(
        # verl's metrics read `returns`.
        {**columns, "advantages": advantages, "returns": advantages.clone(), FACTS: torch.tensor(rows).double()},
        batch_size=len(indices),
    )


def _ragged(value: Tensor, length_PG: Tensor, indices: Sequence[tuple[int, int]]) -> Tensor:
    """`value` (PG or PGT) as a ragged tensor with one number per token of the trajectories at `indices`."""
    rows = [
        value[index].float().expand(int(length_PG[index]))
        if value.ndim == 2
        else value[index].float()[: int(length_PG[index])]
        for index in indices
    ]
    return torch.nested.as_nested_tensor([row.clone() for row in rows], layout=torch.jagged)


def put_corrections(keys: Sequence[str], train: Train) -> None:
    """Put the columns of `corrections.columns` for the trajectories `keys` into the queue, ragged."""
    names = ["old_log_probs", "rollout_log_probs", "response_mask"]
    table = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=names)
    padded_table = table.to_padded_tensor()
    trainer_BT, engine_BT, mask_BT = (padded_table[name] for name in names)
    columns = corrections.columns(train, trainer_BT, engine_BT, mask_BT.bool())
    ragged_mask = table["response_mask"]
    fields = {column_field(name): response_to_nested(value_BT, ragged_mask) for name, value_BT in columns.items()}
    tq.kv_batch_put(keys=keys, partition_id="train", fields=TensorDict(fields, batch_size=len(keys)))


def logp_difference(keys: Sequence[str]) -> float:
    """`sanity/logp_difference` of the trajectories `keys`, under the policy before its update."""
    table = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["old_log_probs", "rollout_log_probs"])
    pairs = zip(table["old_log_probs"].unbind(), table["rollout_log_probs"].unbind(), strict=True)
    return float(torch.cat([(trainer_T - engine_T).abs() for trainer_T, engine_T in pairs]).double().mean())
