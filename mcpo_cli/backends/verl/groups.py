"""Prompt groups of a global step: from verl's columns, and as tensors for metrics."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mcpo_cli.backends.measure import Graded, equal_pairs
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import Verdict, rewards, tally
from mcpo_cli.tasks import Task
from mcpo_cli.tokenization import stop_ids


@dataclass(frozen=True)
class Prompt:
    """A problem submitted for sampling."""

    order: int
    """Position among the step's prompts."""
    problem: Problem
    tier: str
    """Data source."""


@dataclass(frozen=True)
class Group:
    """All rollouts of one prompt; every list is indexed by rollout number."""

    prompt: Prompt
    tokens: list[torch.Tensor]
    """Response tokens, including the end token."""
    reward: list[float]
    verdicts: list[Verdict]
    logp: list[float]
    """Log-probability of each whole rollout at temperature 1, by the rollout engine."""
    entropy: list[float]
    """Entropy of the policy in nats, mean over the rollout's tokens; NaN if the trainer has not computed it."""
    tossed: list[bool] | None = None
    """What rewards the rollouts in place of the verdicts (`train.reward=random`)."""

    @property
    def seen(self) -> list[bool]:
        """What the method takes for right."""
        return self.correct if self.tossed is None else self.tossed

    def rewarded_at_random(self, seed: int, step: int) -> "Group":
        """This group as the local engine would reward it at global step `step` under `train.reward=random`."""
        tossed = rewards.random_rewards(torch.tensor([self.correct]), seed, step, self.prompt.order)[0].tolist()
        return replace(self, reward=list(map(float, tossed)), tossed=tossed)

    @property
    def ungraded(self) -> int:
        """Number of rollouts that could not be graded."""
        return sum(verdict.status == "infra_error" for verdict in self.verdicts)

    @property
    def answers(self) -> int:
        """Number of rollouts that were graded."""
        return len(self.verdicts) - self.ungraded

    @property
    def correct(self) -> list[bool]:
        """Whether each rollout is correct; one that could not be graded counts as wrong."""
        return [verdict.status == "correct" for verdict in self.verdicts]


def prompts(batch: Any, start: int) -> dict[str, Prompt]:
    """The prompts of a verl batch by id; their order counts from `start`."""
    rows = zip(batch["uid"], batch["extra_info"], batch["reward_model"], batch["data_source"], strict=True)
    return {
        str(uid): Prompt(start + i, problem(info, reward), str(source))
        for i, (uid, info, reward, source) in enumerate(rows)
    }


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows of `data.row` in the form of verl's data set: one list per column name."""
    names = ("data_source", "reward_model", "extra_info")
    derived = {"raw_prompt": [row["prompt"] for row in rows], "index": [row["extra_info"]["index"] for row in rows]}
    return {**derived, **{name: [row[name] for row in rows] for name in names}}


def problem(extra_info: Mapping[str, Any], reward_model: Mapping[str, Any]) -> Problem:
    """The problem of a row, from the columns of the same names."""
    return Problem(extra_info["problem"], reward_model["ground_truth"])


def uid_of(key: str) -> str:
    """The prompt id in a trajectory's key `<prompt>_<rollout>_<turn>`."""
    return key.split("_", 1)[0]


def place_of(key: str, known: Mapping[str, Prompt]) -> tuple[int, int]:
    """A trajectory's position in the step: the order of its prompt, and its rollout number."""
    return known[uid_of(key)].order, int(key.split("_")[1])


def in_order(groups: Iterable[Group]) -> list[Group]:
    """The groups sorted by the order of their prompts."""
    return sorted(groups, key=lambda group: group.prompt.order)


def check(groups: Sequence[Group]) -> None:
    """Raise RunFailed if too many rollouts could not be graded."""
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    failures = [verdict.detail for verdict in verdicts if verdict.status == "infra_error"]
    tally.check(Counter(verdict.status for verdict in verdicts), failures[0] if failures else "")


def end_tokens(task: Task, tokenizer: Any) -> Collection[int]:
    """The tokens that end a response to `task`: the tokenizer's end token, and those with a stop string."""
    return {tokenizer.eos_token_id, *stop_ids(tokenizer, task.stops)}


def graded(groups: Sequence[Group], ends: Collection[int], temperature: float) -> Graded:
    """The groups, drawn at `temperature`, as tensors; ends: see `end_tokens`."""
    # Compare digests: comparing thousands of long responses token by token takes a minute.
    digest_PG = torch.tensor([[hash(tokens.numpy().tobytes()) for tokens in group.tokens] for group in groups])
    return Graded(
        problems=[group.prompt.problem for group in groups],
        correct_PG=torch.tensor([group.correct for group in groups]),
        reward_PG=torch.tensor([group.reward for group in groups], dtype=torch.float64),
        length_PG=torch.tensor([[len(tokens) for tokens in group.tokens] for group in groups]),
        ended_PG=torch.tensor([[int(tokens[-1]) in ends for tokens in group.tokens] for group in groups]),
        same_P=equal_pairs(digest_PG[..., None]),
        entropy_PG=torch.tensor([group.entropy for group in groups], dtype=torch.float64),
        # Those of the distribution that they were drawn from are known at temperature 1 only.
        logp_PG=torch.tensor([group.logp for group in groups], dtype=torch.float64) if temperature == 1 else None,
    )
