"""Reads trajectories from verl's queue (TransferQueue) and builds the fields that the loss reads."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.measure import Graded
from mcpo_cli.backends.verl import correction
from mcpo_cli.backends.verl.correction import WEIGHTS
from mcpo_cli.backends.verl.groups import Group, Prompt, place_of, uid_of
from mcpo_cli.backends.verl.loss import FACTS, PREVIOUS, column_field, facts
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.grading import Verdict
from mcpo_cli.methods import Method, MiniBatch, Signals, Step


def read(keys: Iterable[str], partition: str, known: Mapping[str, Prompt]) -> list[Group]:
    """The groups of the trajectories `keys`, in the order of their prompts."""
    ordered = sorted(keys, key=lambda key: place_of(key, known))
    fields = ["responses", "rm_scores", "rollout_log_probs", "extra_fields"]
    data = tq.kv_batch_get(keys=ordered, partition_id=partition, select_fields=fields)
    columns = (*(data[field].unbind() for field in fields[:3]), list(data["extra_fields"]))
    groups: dict[str, Group] = {}
    for key, tokens, score, logp, extra in zip(ordered, *columns, strict=True):
        uid = uid_of(key)
        group = groups.setdefault(uid, Group(known[uid], [], [], [], [], []))
        group.tokens.append(tokens)
        group.reward.append(float(score.sum()))
        said = getattr(extra, "data", extra)["reward_extra_info"]
        group.verdicts.append(Verdict(said["status"], said["answer"] or None, said["detail"]))
        group.logp.append(float(logp.double().sum()))
        group.entropy.append(math.nan)
    return list(groups.values())


def stand_in(keys: Sequence[str]) -> None:
    """Fill the old log-probabilities of trajectories that did not pass through the trainer.

    The rollout engine's stand in: the weights are the same, the rounding is not. Entropies are NaN.
    """
    if keys:
        data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["rollout_log_probs"])
        logp = data["rollout_log_probs"]
        fields = {"old_log_probs": logp, "entropy": torch.full_like(logp, math.nan)}
        tq.kv_batch_put(keys=keys, partition_id="train", fields=TensorDict(fields, batch_size=len(keys)))


def with_entropy(
    groups: Sequence[Group], kinds: Mapping[str, tuple[Hashable, bool]], known: Mapping[str, Prompt]
) -> list[Group]:
    """`groups` with the entropies computed by the trainer.

    kinds: of each of their trajectories, its kind, and whether its entropy is measured. Others have the mean over all
    tokens of those of their kind that are.
    """
    ordered = sorted(kinds, key=lambda key: place_of(key, known))
    data = tq.kv_batch_get(keys=ordered, partition_id="train", select_fields=["entropy"])
    entropies = [values.double() for values in data["entropy"].unbind()]
    measured = defaultdict[Hashable, list[Tensor]](list)
    for key, values in zip(ordered, entropies, strict=True):
        kind, counts = kinds[key]
        if counts:
            measured[kind].append(values)
    mean = {kind: float(torch.cat(values).mean()) for kind, values in measured.items()}
    means = iter(
        float(values.mean()) if counts else mean[kind]
        for values, (kind, counts) in zip(entropies, (kinds[key] for key in ordered), strict=True)
    )
    return [replace(group, entropy=list(islice(means, len(group.tokens)))) for group in groups]


def padded(field: str, keys: Sequence[str], known: Mapping[str, Prompt], length_PG: Tensor) -> Tensor:
    """A field with one number per token, padded to PGT; `keys` are all trajectories of some groups."""
    ordered = sorted(keys, key=lambda key: place_of(key, known))
    rows = tq.kv_batch_get(keys=ordered, partition_id="train", select_fields=[field])[field].unbind()
    padded_BT = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    return padded_BT.view(*length_PG.shape, -1)


def step(
    spec: RunSpec, groups: Sequence[Group], graded: Graded, keys: Sequence[str], known: Mapping[str, Prompt]
) -> Step:
    """The groups, whose trajectories are `keys`, as the `Step` that methods take; `graded`: the same as tensors."""
    needs, answers = spec.method.needs, [[verdict.answer for verdict in group.verdicts] for group in groups]

    def tokens(field: str) -> Tensor:
        return padded(field, keys, known, graded.length_PG)

    return Step(
        reward_PG=graded.reward_PG,
        correct_PG=torch.tensor([group.seen for group in groups]),
        length_PG=graded.length_PG,
        prompt_P=torch.tensor([problem.number for problem in graded.problems]),
        limit=spec.train.max_response,
        # The trainer's own log-probabilities: importance ratios use these.
        logp_PGT=tokens("old_log_probs") if "logp" in needs else None,
        entropy_PGT=tokens("entropy") if "entropy" in needs else None,
        answer_PG=torch.tensor(measure.answer_classes(answers)) if "answers" in needs else None,
    )


def keep_as_previous(keys: Sequence[str]) -> list[str]:
    """Take the newest log-probabilities of the trajectories `keys` for those under the previous policy.

    Returns the names of all their fields: verl's passes read those that a batch names.
    """
    from verl.workers.utils.padding import response_from_nested

    data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["log_probs", "response_mask"])
    field = {PREVIOUS: response_from_nested(data["log_probs"], data["response_mask"])}
    put = tq.kv_batch_put(keys=keys, partition_id="train", fields=TensorDict(field, batch_size=len(keys)))
    return list(put.fields)


def fields(
    method: Method, signals: Signals, length_PG: Tensor, totals: Sequence[MiniBatch], places: Sequence[tuple[int, int]]
) -> TensorDict:
    """What the loss reads for the trajectories at `places` (prompt, rollout): advantages, columns, facts.

    totals: one per mini-batch; all mini-batches have equally many prompts.
    """
    size = len(length_PG) // len(totals)
    rows = [facts(method, signals, place, totals[place[0] // size]) for place in places]
    nested = {column_field(name): _ragged(signals.columns[name], length_PG, places) for name in method.token_columns}
    advantages = _ragged(signals.advantage, length_PG, places)
    return TensorDict(
        # verl's metrics read `returns`.
        {**nested, "advantages": advantages, "returns": advantages.clone(), FACTS: torch.tensor(rows).double()},
        batch_size=len(places),
    )


def _ragged(value: Tensor, length_PG: Tensor, places: Sequence[tuple[int, int]]) -> Tensor:
    """`value` (PG or PGT) as a ragged tensor with one number per token of the trajectories at `places`."""
    rows = [
        value[place].float().expand(int(length_PG[place]))
        if value.ndim == 2
        else value[place].float()[: int(length_PG[place])]
        for place in places
    ]
    return torch.nested.as_nested_tensor([row.clone() for row in rows], layout=torch.jagged)


def put_weights(keys: Sequence[str], cap: float) -> dict[str, float]:
    """Put `correction.weights` of the trajectories `keys` into the queue, ragged; returns their metrics."""
    from verl.workers.utils.padding import response_to_nested

    names = ["old_log_probs", "rollout_log_probs", "response_mask"]
    data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=names)
    padded = data.to_padded_tensor()
    trainer_BT, engine_BT, mask_BT = (padded[name] for name in names)
    weight_BT, measured = correction.weights(trainer_BT, engine_BT, mask_BT, cap)
    field = {WEIGHTS: response_to_nested(weight_BT, data["response_mask"])}
    tq.kv_batch_put(keys=keys, partition_id="train", fields=TensorDict(field, batch_size=len(keys)))
    return measured


def logp_difference(keys: Sequence[str]) -> float:
    """`sanity/logp_difference` of the trajectories `keys`, under the policy before its update."""
    data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["old_log_probs", "rollout_log_probs"])
    pairs = zip(data["old_log_probs"].unbind(), data["rollout_log_probs"].unbind(), strict=True)
    return float(torch.cat([(trained - sampled).abs() for trained, sampled in pairs]).double().mean())
