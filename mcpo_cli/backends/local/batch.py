"""The batch of a global step: all groups that were sampled, graded and rewarded, and which of them are trained on.

Groups of different sizes are a rectangle with empty places (`backends/graded.py`); `backends/masking.py` gives methods
the rollouts that were graded.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from mcpo_cli.backends import checks, corrections, masking, measure
from mcpo_cli.backends.graded import Graded, equal_pairs, overlong_penalty, random_rewards
from mcpo_cli.backends.local.encoding import Language
from mcpo_cli.backends.local.generate import Rollouts, concatenate, drawn_by
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.update import crop
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import functions
from mcpo_cli.methods import Method, Step
from mcpo_cli.methods.base import Need


@dataclass(frozen=True)
class Sampled:
    """All groups sampled for one global step at `temperature`, and which of them (in order) make its batch."""

    temperature: float
    problems: list[Problem]
    rollouts: Rollouts
    correct_PG: Tensor
    """False in empty places, as `reward_PG` is 0 there."""
    graded_PG: Tensor
    """False where a rollout could not be graded."""
    seen_PG: Tensor
    """Correctness as the method gets it: `correct_PG`, or coins (`train.reward`)."""
    answers: list[list[str | None]]
    reward_PG: Tensor
    batch_index: Tensor

    @staticmethod
    def joined(rounds: Sequence["Sampled"], batch: Sequence[int]) -> "Sampled":
        """The groups of all rounds of a step as one; batch: the indices of the groups that are trained on."""
        return Sampled(
            temperature=rounds[0].temperature,
            problems=[problem for part in rounds for problem in part.problems],
            rollouts=concatenate([part.rollouts for part in rounds]),
            correct_PG=torch.cat([part.correct_PG for part in rounds]),
            graded_PG=torch.cat([part.graded_PG for part in rounds]),
            seen_PG=torch.cat([part.seen_PG for part in rounds]),
            answers=[answers for part in rounds for answers in part.answers],
            reward_PG=torch.cat([part.reward_PG for part in rounds]),
            batch_index=torch.tensor(batch, device=rounds[0].batch_index.device),
        )

    @cached_property
    def graded(self) -> Graded:
        """Inputs of the metrics."""
        rollouts = self.rollouts
        return Graded(
            problems=self.problems,
            correct_PG=self.correct_PG,
            reward_PG=self.reward_PG,
            length_PG=rollouts.length_PG,
            ended_PG=rollouts.ended_PG,
            # Padded with the end token, which no response holds before its end.
            same_P=equal_pairs(rollouts.token_PGT, rollouts.drawn_PG),
            entropy_PG=rollouts.entropy_PGT.sum(-1) / rollouts.length_PG.clamp(min=1),
            # The sampler records log-probabilities at temperature 1.
            logp_PG=rollouts.logp_PGT.sum(-1) if self.temperature == 1 else None,
            graded_PG=self.graded_PG,
        )

    @cached_property
    def batch(self) -> Rollouts:
        """The rollouts that are trained on, padded to the longest of them, as `Step` has them."""
        return crop(self.rollouts.select(self.batch_index))

    def used(self, method: Method) -> Tensor:
        """used_PG of the groups that are trained on, see `masking.used`."""
        return masking.used(method, self.batch.drawn_PG, self.graded_PG[self.batch_index])

    def for_method(self, needs: Collection[Need], max_response: int) -> Step:
        """The groups that are trained on, as methods see them."""
        indices, rollouts = self.batch_index, self.batch
        problems, answers = [self.problems[index] for index in indices], [self.answers[index] for index in indices]
        tensor = partial(torch.tensor, device=rollouts.length_PG.device)
        return Step(
            reward_PG=self.reward_PG[indices],
            correct_PG=self.seen_PG[indices],
            length_PG=rollouts.length_PG,
            prompt_P=tensor([problem.number for problem in problems]),
            max_response=max_response,
            logp_PGT=rollouts.logp_PGT if "logp" in needs else None,
            entropy_PGT=rollouts.entropy_PGT if "entropy" in needs else None,
            answer_PG=tensor(measure.answer_classes(answers)) if "answers" in needs else None,
        )


def rewarded(
    language: Language,
    spec: RunSpec,
    start: tuple[int, int],
    problems: Sequence[Problem],
    rollouts: Rollouts,
    correct_PG: Tensor,
) -> tuple[Tensor, Tensor]:
    """seen_PG, correctness as methods get it, and reward_PG, the reward with the additions of `train`.

    Args:
        start: the global step, and the index in it of the first of `problems`.
        correct_PG: the verdicts.
    """
    train, seen_PG = spec.train, correct_PG
    if train.reward == "random":
        seen_PG = random_rewards(seen_PG, spec.seed, *start)
    reward_PG = seen_PG.double()
    if functions.is_function(train.reward):
        reward_PG = language.rewards(train.reward, problems, rollouts)
    shaping = train.max_response, train.overlong_cache, train.overlong_penalty
    return seen_PG, reward_PG + overlong_penalty(rollouts.length_PG, *shaping)


def greedy_rewards(
    policy: Policy, language: Language, spec: RunSpec, step: int, problems: Sequence[Problem]
) -> tuple[Tensor, Tensor, int]:
    """reward_P and graded_P of each prompt's greedy response, and the number of tokens of all these responses."""
    train, prompt_PS = spec.train, language.prompts(problems).to(policy.device)
    zero_TP1 = torch.zeros(train.max_response, len(problems), 1, device=policy.device)
    draw = partial(_most_likely, train.sampler_rounding)
    with checks.at(f"step {step}"):
        rollouts = drawn_by(draw, policy, prompt_PS, zero_TP1, language.eos, language.stops)
    # An index that no sampled prompt has, so that greedy responses have their own random numbers.
    start = step, train.prompts * (1 + train.max_refills)
    grades = language.grade(problems, rollouts)
    _, reward_P1 = rewarded(language, spec, start, problems, rollouts, grades.correct_PG)
    return reward_P1.squeeze(-1), grades.graded_PG.squeeze(-1), int(rollouts.length_PG.sum())


def _most_likely(rounding: float, logits_NV: Tensor, row_M: Tensor, uniform_M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `Draw`: the most likely token, of equals the first. The other values (largest logit or NaN) are not used."""
    logits_NV = corrections.rounded(logits_NV, rounding)
    largest_M = logits_NV.amax(-1)[row_M]
    return logits_NV.argmax(-1)[row_M], largest_M, largest_M
