"""Prompt groups of a global step as they come out of verl's queue (TransferQueue)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from mcpo_cli.backends.measure import Graded, equal_pairs
from mcpo_cli.benchmarks import Problem
from mcpo_cli.grading import Verdict, tally


@dataclass(frozen=True)
class Prompt:
    """A problem that was given out to be sampled; order: its place among those of the step. tier: its data source."""

    order: int
    problem: Problem
    tier: str


@dataclass(frozen=True)
class Group:
    """All rollouts of one prompt, by number of the rollout. tokens: of the responses, the end token included."""

    prompt: Prompt
    tokens: list[torch.Tensor]
    reward: list[float]
    verdicts: list[Verdict]

    @property
    def ungraded(self) -> int:
        """Rollouts that nothing is known about."""
        return sum(verdict.status == "infra_error" for verdict in self.verdicts)

    @property
    def correct(self) -> list[bool]:
        """Those that were graded as correct; in training one that was not graded counts as wrong."""
        return [verdict.status == "correct" for verdict in self.verdicts]


def prompts(batch: Any, start: int) -> dict[str, Prompt]:
    """The prompts of one of verl's batches by id, counted from `start`."""
    rows = zip(batch["uid"], batch["extra_info"], batch["reward_model"], batch["data_source"], strict=True)
    return {
        str(uid): Prompt(start + i, Problem(info["problem"], reward["ground_truth"]), str(source))
        for i, (uid, info, reward, source) in enumerate(rows)
    }


def uid_of(key: str) -> str:
    """The prompt of a trajectory, whose key is `<prompt>_<rollout>_<turn>`."""
    return key.split("_", 1)[0]


def read(keys: Iterable[str], partition: str, known: Mapping[str, Prompt]) -> dict[str, Group]:
    """The groups that `keys` name, in the order of their prompts."""
    import transfer_queue as tq

    ordered = sorted(keys, key=lambda key: (known[uid_of(key)].order, int(key.split("_")[1])))
    data = tq.kv_batch_get(
        keys=ordered, partition_id=partition, select_fields=["responses", "rm_scores", "extra_fields"]
    )
    scores, extras = data["rm_scores"].unbind(), list(data["extra_fields"])
    found: dict[str, Group] = {}
    for key, tokens, score, extra in zip(ordered, data["responses"].unbind(), scores, extras, strict=True):
        uid = uid_of(key)
        group = found.setdefault(uid, Group(known[uid], [], [], []))
        group.tokens.append(tokens)
        group.reward.append(float(score.sum()))
        said = getattr(extra, "data", extra)["reward_extra_info"]
        group.verdicts.append(Verdict(said["status"], detail=said["detail"]))
    return found


def check(groups: Sequence[Group]) -> None:
    """Raises RunFailed where too many of the rollouts could not be graded."""
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    failures = [verdict.detail for verdict in verdicts if verdict.status == "infra_error"]
    tally.check(Counter(verdict.status for verdict in verdicts), failures[0] if failures else "")


def graded(groups: Sequence[Group], end_token: int) -> Graded:
    """The groups as tensors."""
    return Graded(
        problems=[group.prompt.problem for group in groups],
        correct_PG=torch.tensor([group.correct for group in groups]),
        reward_PG=torch.tensor([group.reward for group in groups], dtype=torch.float64),
        length_PG=torch.tensor([[len(tokens) for tokens in group.tokens] for group in groups]),
        ended_PG=torch.tensor([[int(tokens[-1]) == end_token for tokens in group.tokens] for group in groups]),
        same_P=torch.stack([equal_pairs(pad_sequence(group.tokens, True, padding_value=-1)) for group in groups]),
    )
