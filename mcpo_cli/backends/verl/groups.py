"""Prompt groups of a global step, in verl's columns and as the tensors that metrics are computed from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mcpo_cli.backends.measure import Graded, equal_pairs
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import Verdict, tally


@dataclass(frozen=True)
class Prompt:
    """A problem that was given out to be sampled; order: its place among those of the step. tier: its data source."""

    order: int
    problem: Problem
    tier: str


@dataclass(frozen=True)
class Group:
    """All rollouts of one prompt, by number of the rollout. tokens: of the responses, the end token included.

    logp: log-probability of each whole rollout under the distribution that it was drawn from. entropy: of the policy,
    nats, mean over its tokens; NaN where the trainer has not computed it.
    """

    prompt: Prompt
    tokens: list[torch.Tensor]
    reward: list[float]
    verdicts: list[Verdict]
    logp: list[float]
    entropy: list[float]

    @property
    def ungraded(self) -> int:
        """Rollouts that nothing is known about."""
        return sum(verdict.status == "infra_error" for verdict in self.verdicts)

    @property
    def answers(self) -> int:
        """Rollouts that were graded."""
        return len(self.verdicts) - self.ungraded

    @property
    def correct(self) -> list[bool]:
        """Those that were graded as correct; in training one that was not graded counts as wrong."""
        return [verdict.status == "correct" for verdict in self.verdicts]


def prompts(batch: Any, start: int) -> dict[str, Prompt]:
    """The prompts of one of verl's batches by id, counted from `start`."""
    rows = zip(batch["uid"], batch["extra_info"], batch["reward_model"], batch["data_source"], strict=True)
    return {
        str(uid): Prompt(start + i, problem(info, reward), str(source))
        for i, (uid, info, reward, source) in enumerate(rows)
    }


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows of `data.row` as verl's data set hands them out: a column a name."""
    names = ("data_source", "reward_model", "extra_info")
    found = {"raw_prompt": [row["prompt"] for row in rows], "index": [row["extra_info"]["index"] for row in rows]}
    return {**found, **{name: [row[name] for row in rows] for name in names}}


def problem(extra_info: Mapping[str, Any], reward_model: Mapping[str, Any]) -> Problem:
    """The problem of a row, from the columns of the same names."""
    return Problem(extra_info["problem"], reward_model["ground_truth"])


def uid_of(key: str) -> str:
    """The prompt of a trajectory, whose key is `<prompt>_<rollout>_<turn>`."""
    return key.split("_", 1)[0]


def place_of(key: str, known: Mapping[str, Prompt]) -> tuple[int, int]:
    """Where a trajectory stands among all of a step: the order of its prompt, and its number in the group."""
    return known[uid_of(key)].order, int(key.split("_")[1])


def in_order(groups: Iterable[Group]) -> list[Group]:
    """By the order of their prompts."""
    return sorted(groups, key=lambda group: group.prompt.order)


def check(groups: Sequence[Group]) -> None:
    """Raises RunFailed where too many of the rollouts could not be graded."""
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    failures = [verdict.detail for verdict in verdicts if verdict.status == "infra_error"]
    tally.check(Counter(verdict.status for verdict in verdicts), failures[0] if failures else "")


def graded(groups: Sequence[Group], end_token: int) -> Graded:
    """The groups as tensors."""
    # A number stands for each response: to compare thousands of long ones token by token takes a minute.
    digest_PG = torch.tensor([[hash(tokens.numpy().tobytes()) for tokens in group.tokens] for group in groups])
    return Graded(
        problems=[group.prompt.problem for group in groups],
        correct_PG=torch.tensor([group.correct for group in groups]),
        reward_PG=torch.tensor([group.reward for group in groups], dtype=torch.float64),
        length_PG=torch.tensor([[len(tokens) for tokens in group.tokens] for group in groups]),
        ended_PG=torch.tensor([[int(tokens[-1]) == end_token for tokens in group.tokens] for group in groups]),
        same_P=equal_pairs(digest_PG[..., None]),
        entropy_PG=torch.tensor([group.entropy for group in groups], dtype=torch.float64),
        logp_PG=torch.tensor([group.logp for group in groups], dtype=torch.float64),
    )
