"""The local engine's own global step, unchanged or with grades that are given instead of earned."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import flops, workload
from mcpo_cli.backends.local.batch import Sampled
from mcpo_cli.backends.local.generate import sample
from mcpo_cli.backends.local.initial_policy import initial_policy, policy_of
from mcpo_cli.backends.local.train import Trainer
from mcpo_cli.backends.local.update import GradedBatch
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.methods.base import State
from mcpo_cli.runs.attempts import Attempt

Grade = Callable[[int, int], Tensor]
"""Maps numbers of prompts and rollouts to correct_PG."""


def coin_flips(prompts: int, rollouts: int) -> Tensor:
    """Nearly every sequence has a gradient: one group of 16 flips in 32768 is constant."""
    return torch.rand(prompts, rollouts) < 0.5


def quarters(prompts: int, rollouts: int) -> Tensor:
    """A quarter of the groups is all correct, a quarter all incorrect, the others are coin flips."""
    correct_PG = coin_flips(prompts, rollouts)
    correct_PG[::4] = True
    correct_PG[1::4] = False
    return correct_PG


class Timed(Trainer):
    """A trainer that times its global steps and counts their arithmetic."""

    needed = 0
    """Floating-point operations of the last step."""

    def batch(self, sampled: Sampled) -> tuple[GradedBatch, State]:
        """See `Trainer`; also keeps the rollouts that were sampled and those that are trained on."""
        batch, state = super().batch(sampled)
        self._done = (
            sampled.rollouts,
            batch.select(batch.signals.has_gradient_PG.any(-1).nonzero().squeeze(-1)).rollouts,
        )
        return batch, state

    def seconds(self) -> float:
        """Wall time of the next global step, journal and metrics included."""
        self.step += 1
        start = time.perf_counter()
        self.global_step()
        taken = time.perf_counter() - start
        self.needed = flops.global_step(self.spec, self.policy.model, *self._done)
        return taken


class RealRun(Timed):
    """A run as users have it, from the base policy of its spec on; journals to a scrap folder."""

    def __init__(self, spec: RunSpec) -> None:
        self.scrap = tempfile.TemporaryDirectory()
        attempt = Attempt(Path(self.scrap.name), spec, 0)
        super().__init__(spec, attempt, *initial_policy(spec, attempt, stop=lambda: False))


class LocalEngine(Timed):
    """A policy at its initial weights, trained step by step on work graded by `grade`; journals to a scrap folder."""

    def __init__(self, spec: RunSpec, grade: Grade) -> None:
        model, tokenizer = workload.fresh_model(spec)
        self.grade = grade
        self.scrap = tempfile.TemporaryDirectory()
        super().__init__(spec, Attempt(Path(self.scrap.name), spec, 0), policy_of(model, spec), tokenizer)

    def sample_round(
        self, problems: Sequence[Problem], number: int, before: int, counts: Sequence[int] = ()
    ) -> Sampled:
        """See `Trainer`; the problems are the workload's, and no token ends a response."""
        train, problems = self.spec.train, workload.prompts(self.spec, self.step)
        shape, before = (train.rollouts, train.max_response, train.temperature), time.process_time()
        rollouts = sample(self.policy, self.language.prompts(problems), *shape, eos=workload.NEVER, seed=self.step)
        self.sampling_cpu_seconds = time.process_time() - before
        torch.manual_seed(self.step)
        correct_PG = self.grade(train.prompts, train.rollouts)
        return Sampled(
            temperature=train.temperature,
            problems=problems,
            rollouts=rollouts,
            correct_PG=correct_PG,
            graded_PG=torch.ones_like(correct_PG),
            seen_PG=correct_PG,
            answers=[[None] * train.rollouts for _ in problems],
            reward_PG=correct_PG.double(),
            batch_index=torch.arange(len(problems)),
        )
