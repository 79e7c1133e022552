"""One global step by several arms from the saved states of a run.

In `branch` all arms take their step on the same batch. The change of a prompt's accuracy is estimated from rollouts of
the policies before and after the step together (multiple importance sampling with the balance heuristic, Veach and
Guibas 1995). Under their mixture q = (p + p') / 2,

    E_p'[R] - E_p[R] = E_q[(p' - p) / q R] = E_q[2 tanh(d / 2) R],   d = log p' - log p,

so no weight exceeds 2, and a response whose probability the step does not change adds 0. All arms are measured
with the same rollouts before the step, and draw rollouts after it at the same quantiles, so that differences between
arms depend little on chance. Mastered prompts were selected by other rollouts, so selection does not affect the result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from mcpo_cli.backends import checks
from mcpo_cli.backends.local.batch import Sampled
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.initial_policy import initial_policy
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.precision import product_precision
from mcpo_cli.backends.local.train import Trainer
from mcpo_cli.backends.local.tree import lengths
from mcpo_cli.backends.local.update import log_probs
from mcpo_cli.config.branching import Trunk
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data.base import Problem
from mcpo_cli.records import BranchRow, MiniBatchRow
from mcpo_cli.runs import folders
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.seeds import stream


@dataclass(frozen=True)
class Cohort:
    """Prompts with the rollouts that the policy before the step gave them."""

    name: Literal["mastered", "held_out"]
    tier: str
    """The held-out tier; empty for mastered prompts."""
    problems: Sequence[Problem]
    rollouts: Rollouts
    correct_PG: Tensor
    logp_PGT: Tensor
    """Log-probability of each token of `rollouts` before the step; no arm changes it."""
    number: int
    """Its number among the cohorts, which decides its random streams."""


def branch(trunk: Trunk, attempt: Attempt, run_dir: Path, step: int) -> None:
    """Let each arm take its step from the state after `step`, one after the other, and record its rows."""
    torch.set_num_threads(trunk.spec.compute.threads)
    policy, tokenizer = initial_policy(trunk.spec, attempt, stop=lambda: False)
    folder = folders.checkpoints(run_dir)[step]
    branch_rows, mini_batches = list[BranchRow](), list[MiniBatchRow]()

    def at_point(spec: RunSpec) -> Trainer:
        trainer = Trainer(spec, attempt, policy, tokenizer)
        trainer.restore(folder)
        trainer.step += 1
        return trainer

    with product_precision(policy):
        attempt.phase(f"sampling at step {step + 1}")
        trainer = at_point(trunk.spec)
        old_policy = policy.copy()
        sampled = trainer.collect()
        cohorts = list(_cohorts(trainer, sampled, trunk))
        for arm, spec in trunk.arms.items():
            attempt.phase(f"{arm} takes step {step + 1}")
            # The trainer before is released first: its moments take twice the memory of the weights.
            del trainer
            trainer = at_point(spec)
            with checks.at(arm):
                batch, trainer.method_state = trainer.batch(sampled)
                _, updates = trainer.updater.global_step(batch, trainer.step)
                mini_batches += [{**update, "arm": arm} for update in updates]
                for cohort in cohorts:
                    branch_rows += rows(arm, trainer, old_policy, cohort)
    attempt.journal.rows("branches", step + 1, branch_rows)
    attempt.journal.rows("mini_batches", step + 1, mini_batches)


def _cohorts(trainer: Trainer, sampled: Sampled, trunk: Trunk) -> Iterator[Cohort]:
    """The mastered prompts of the batch, if it has any, and the held-out tiers."""
    mastered_problems = [sampled.problems[index] for index in sampled.graded.mastered_P.nonzero().squeeze(-1).tolist()]
    if mastered_problems:
        yield _cohort(trainer, "mastered", "", mastered_problems, trunk.sizes.controls, 0)
    if trunk.sizes.held_out:
        tiers = trainer.problems.tiers(trunk.spec.eval.problems)
        for number, (tier, problems) in enumerate(tiers.items(), 1):
            yield _cohort(trainer, "held_out", tier, problems, trunk.sizes.held_out, number)


def _cohort(
    trainer: Trainer, name: Literal["mastered", "held_out"], tier: str, problems: Sequence[Problem], n: int, number: int
) -> Cohort:
    rollouts, correct_PG = sample(trainer, tier, problems, n, stream(trainer.spec.seed, "branch", trainer.step, number))
    logp_PGT = _log_probs(trainer.policy, rollouts, trainer.spec.compute.micro_batch_tokens)
    return Cohort(name, tier, problems, rollouts, correct_PG, logp_PGT, number)


def sample(trainer: Trainer, tier: str, problems: Sequence[Problem], n: int, seed: int) -> tuple[Rollouts, Tensor]:
    """n rollouts at temperature 1 of each problem under the current policy, and which are correct."""
    rollouts = trainer.sample(problems, n, trainer.spec.train.max_response, 1.0, seed)
    return rollouts, trainer.language.grade(problems, rollouts, tier).correct_PG


def rows(arm: str, trainer: Trainer, old_policy: Policy, cohort: Cohort) -> Iterator[BranchRow]:
    """A row for each prompt of the cohort: `old_policy` is the policy before the arm's step, `trainer` has the new one.

    Axis N has n rollouts of a prompt before the step, then n after it, which every arm draws at the same quantiles.
    """
    n, tokens = cohort.correct_PG.shape[1], trainer.spec.compute.micro_batch_tokens
    seed = stream(trainer.spec.seed, "branch_after", trainer.step, cohort.number)
    new_rollouts, correct_after_PG = sample(trainer, cohort.tier, cohort.problems, n, seed)
    # The step's change of each token's log-probability.
    change_PGT = (_log_probs(trainer.policy, cohort.rollouts, tokens) - cohort.logp_PGT).double()
    change_after_PGT = _log_probs(trainer.policy, new_rollouts, tokens) - _log_probs(old_policy, new_rollouts, tokens)
    correct_PN = torch.cat([cohort.correct_PG, correct_after_PG], -1)
    tilt_PN = torch.cat([change_PGT.sum(-1), change_after_PGT.double().sum(-1)], -1).div(2).tanh() * 2
    drift_P = change_PGT.abs().sum((-1, -2)) / cohort.rollouts.length_PG.sum(-1)
    for index, problem in enumerate(cohort.problems):
        yield BranchRow(
            step=trainer.step,
            arm=arm,
            cohort=cohort.name,
            tier=cohort.tier,
            prompt=problem.text,
            n=n,
            c=int(cohort.correct_PG[index].sum()),
            c_after=int(correct_PN[index, n:].sum()),
            change=float((tilt_PN[index] * correct_PN[index]).mean()),
            balance=float(tilt_PN[index].mean()),
            drift=float(drift_P[index]),
        )


@torch.no_grad()
def _log_probs(policy: Policy, rollouts: Rollouts, most_tokens: int) -> Tensor:
    """Log-probability of each token, 0 after a response's end; a few prompts at a time."""
    token_P = rollouts.length_PG.sum(-1) + lengths(rollouts.prompt_PS)
    size = max(1, most_tokens // int(token_P.max()))
    parts = [
        torch.where(part.mask_PGT, log_probs(policy, part), 0.0)
        for part in map(rollouts.select, torch.arange(len(token_P)).split(size))
    ]
    return torch.cat(parts)
