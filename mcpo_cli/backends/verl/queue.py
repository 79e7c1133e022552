"""Trajectories in verl's queue (TransferQueue), which only the processes of a run can read, as groups."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
import transfer_queue as tq

from mcpo_cli.backends.verl.groups import Group, Prompt, place_of, uid_of
from mcpo_cli.grading import Verdict


def read(keys: Iterable[str], partition: str, known: Mapping[str, Prompt]) -> list[Group]:
    """The groups that `keys` name, in the order of their prompts."""
    ordered = sorted(keys, key=lambda key: place_of(key, known))
    fields = ["responses", "rm_scores", "rollout_log_probs", "extra_fields"]
    data = tq.kv_batch_get(keys=ordered, partition_id=partition, select_fields=fields)
    columns = (*(data[field].unbind() for field in fields[:3]), list(data["extra_fields"]))
    found: dict[str, Group] = {}
    for key, tokens, score, logp, extra in zip(ordered, *columns, strict=True):
        uid = uid_of(key)
        group = found.setdefault(uid, Group(known[uid], [], [], [], [], []))
        group.tokens.append(tokens)
        group.reward.append(float(score.sum()))
        said = getattr(extra, "data", extra)["reward_extra_info"]
        group.verdicts.append(Verdict(said["status"], detail=said["detail"]))
        group.logp.append(float(logp.double().sum()))
        group.entropy.append(math.nan)
    return list(found.values())


def with_entropy(groups: Sequence[Group], keys: Sequence[str], known: Mapping[str, Prompt]) -> list[Group]:
    """`groups`, whose trajectories are `keys`, with the entropies that the trainer has computed."""
    ordered = sorted(keys, key=lambda key: place_of(key, known))
    data = tq.kv_batch_get(keys=ordered, partition_id="train", select_fields=["entropy"])
    means = iter([float(values.double().mean()) for values in data["entropy"].unbind()])
    return [replace(group, entropy=list(islice(means, len(group.tokens)))) for group in groups]


def logp_difference(keys: Sequence[str]) -> float:
    """`sanity/logp_difference` of the trajectories `keys`, before the policy moved."""
    data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["old_log_probs", "rollout_log_probs"])
    pairs = zip(data["old_log_probs"].unbind(), data["rollout_log_probs"].unbind(), strict=True)
    return float(torch.cat([(trained - sampled).abs() for trained, sampled in pairs]).double().mean())
