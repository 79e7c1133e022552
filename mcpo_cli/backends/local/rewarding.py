"""Rewards of responses, and those of the greedy responses that a method may compare them with."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from mcpo_cli.backends import checks, corrections
from mcpo_cli.backends.local.encoding import Language
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import Rollouts, drawn_by
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import functions, rewards


def rewarded(
    language: Language,
    spec: RunSpec,
    at: tuple[int, int],
    problems: Sequence[Problem],
    rollouts: Rollouts,
    correct_PG: Tensor,
) -> tuple[Tensor, Tensor]:
    """seen_PG, correctness as methods get it, and reward_PG with what `train` adds to it.

    Args:
        at: the global step, and the index of the first of `problems` among those of the step.
        correct_PG: the verdicts.
    """
    train, seen_PG = spec.train, correct_PG
    if train.reward == "random":
        seen_PG = rewards.random_rewards(seen_PG, spec.seed, *at)
    reward_PG = seen_PG.double()
    if functions.is_one(train.reward):
        reward_PG = language.rewards(train.reward, problems, rollouts)
    shaping = train.max_response, train.overlong_cache, train.overlong_penalty
    return seen_PG, reward_PG + rewards.overlong_penalty(rollouts.length_PG, *shaping)


def greedy_rewards(
    policy: Policy, language: Language, spec: RunSpec, step: int, problems: Sequence[Problem]
) -> tuple[Tensor, int]:
    """reward_P of the most likely response of each prompt, token by token, and the tokens of all of them."""
    train, prompt_PS = spec.train, language.prompts(problems).to(policy.device)
    nothing_TP1 = torch.zeros(train.max_response, len(problems), 1, device=policy.device)
    draw = partial(_most_likely, train.sampler_rounding)
    with checks.at(f"step {step}"):
        rollouts = drawn_by(draw, policy, prompt_PS, nothing_TP1, language.eos, language.stops)
    # Places that no sampled prompt has: coins of their own.
    at = step, train.prompts * (1 + train.max_refills)
    correct_P1 = language.judge(problems, rollouts).correct_PG
    _, reward_P1 = rewarded(language, spec, at, problems, rollouts, correct_P1)
    return reward_P1.squeeze(-1), int(rollouts.length_PG.sum())


def _most_likely(rounding: float, logits_NV: Tensor, row_M: Tensor, uniform_M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `Draw`: of equally likely tokens the first. The largest logit, NaN if one is, stands for what is not used."""
    logits_NV = corrections.rounded(logits_NV, rounding)
    largest_M = logits_NV.amax(-1)[row_M]
    return logits_NV.argmax(-1)[row_M], largest_M, largest_M
