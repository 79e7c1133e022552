"""GRPO in one file, top to bottom: warm a tiny model up, sample groups, grade them, take gradient steps, evaluate.

    python examples/grpo_from_scratch.py            # under a minute on two CPU cores

The parts that are not the point come from mcpo: a task with its verifier, a policy (a Qwen3 of 108k parameters) and a
sampler. The loss and the loop are spelled out here; `mcpo train method=grpo` runs the same mathematics with records,
checkpoints and seeds, and `mcpo_cli/methods` has it in parts that other methods combine.

Shape suffixes: P prompts, G rollouts of each, T response tokens, S prompt tokens. Each rollout has a reward R, 0 or 1.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mcpo_cli import grading
from mcpo_cli.backends.local import encoding, tokenizer
from mcpo_cli.backends.local.generate import Rollouts, sample
from mcpo_cli.backends.local.policy import Policy, build
from mcpo_cli.config.schema import Model
from mcpo_cli.data.base import Problem
from mcpo_cli.tasks.chains import Arithmetic


@dataclass(frozen=True)
class Settings:
    """The settings of the example; with the defaults, accuracy rises visibly in under a minute."""

    seed: int = 0
    warmup_steps: int = 700
    """Supervised steps on worked demonstrations; RL needs a policy that is sometimes correct."""
    steps: int = 60
    """Global steps: each samples P x G rollouts and takes P / mini_batch gradient steps on them."""
    prompts: int = 64
    rollouts: int = 16
    mini_batch: int = 32
    """Prompts of one gradient step."""
    learning_rate: float = 7e-4
    clip_low: float = 0.2
    clip_high: float = 0.2


TASK = Arithmetic(max_ops=2, warmup_max_ops=2)
"""Chains such as `7 + 3 * 2 =` modulo 11; the answer writes every intermediate value."""
TOKENS = tokenizer.build(TASK.vocabulary)


def advantages(reward_PG: Tensor) -> Tensor:
    """A = (R - mean R) / std R within each group; 0 where all rollouts of a group have one reward."""
    centred_PG = reward_PG - reward_PG.mean(-1, keepdim=True)
    std_P1 = reward_PG.std(-1, keepdim=True, correction=0)
    return centred_PG / std_P1.where(std_P1 > 0, 1.0)


def grpo_loss(
    logp_PGT: Tensor, logp_old_PGT: Tensor, advantage_PG: Tensor, mask_PGT: Tensor, clip_low: float, clip_high: float
) -> Tensor:
    """-mean over rollouts of mean over tokens of min(r A, clip(r, 1 - clip_low, 1 + clip_high) A).

    r = pi / pi_old is the ratio of each token's probability now to the one it was sampled with. At the first gradient
    step of a batch r = 1 and the gradient is REINFORCE's; later the clip removes the gradient of tokens whose
    probability has already moved far in the direction that A asks for.
    """
    ratio_PGT = (logp_PGT - logp_old_PGT).exp()
    A_PG1 = advantage_PG[..., None]
    clipped_PGT = ratio_PGT.clamp(1 - clip_low, 1 + clip_high)
    objective_PGT = torch.minimum(ratio_PGT * A_PG1, clipped_PGT * A_PG1) * mask_PGT
    return -(objective_PGT.sum(-1) / mask_PGT.sum(-1)).mean()


def rewards(problems: Sequence[Problem], rollouts: Rollouts) -> Tensor:
    """reward_PG: 1.0 where the task's verifier accepts the response."""
    end = TOKENS.eos_token
    texts_PG = [[text.removesuffix(end) for text in group] for group in encoding.words_of(rollouts, TOKENS)]
    verifier = grading.loaded(TASK.grader)
    return torch.tensor(
        [
            [float(verifier.grade(problem.gold, text, extracted=False).status == "correct") for text in texts]
            for problem, texts in zip(problems, texts_PG, strict=True)
        ]
    )


def roll(policy: Policy, problems: Sequence[Problem], rollouts: int, seed: int) -> tuple[Rollouts, Tensor]:
    """`rollouts` responses to each problem at temperature 1, and their rewards."""
    prompt_PS = encoding.prompts(TOKENS, problems)
    sampled = sample(policy, prompt_PS, rollouts, TASK.answer_length, 1.0, TOKENS.eos_token_id, seed)
    return sampled, rewards(problems, sampled)


def gradient_step(policy: Policy, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One clipped step down the gradient of `loss`."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def warm_up(policy: Policy, settings: Settings) -> None:
    """Cross-entropy on demonstrations, so that some rollouts are correct and the groups differ in reward."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(settings.warmup_steps):
        shown = encoding.encode(TOKENS, TASK.demonstrations(settings.seed, step, 64), TASK.answer_length)
        mask_P1T = shown.mask_PT[:, None]
        logp_P1T = policy.log_probs(shown.prompt_PS, shown.gold_PT[:, None], mask_P1T)
        gradient_step(policy, optimizer, -logp_P1T.sum() / mask_P1T.sum())


def global_step(policy: Policy, optimizer: torch.optim.Optimizer, step: int, settings: Settings) -> float:
    """Sample a batch, then learn from it mini-batch by mini-batch; returns the batch's accuracy."""
    problems = TASK.training(settings.seed, step * settings.prompts, settings.prompts)
    batch, reward_PG = roll(policy, problems, settings.rollouts, seed=1000 + step)
    advantage_PG = advantages(reward_PG)
    for index in torch.arange(settings.prompts).split(settings.mini_batch):
        part = batch.select(index)
        mask_PGT = part.mask_PGT
        logp_PGT = policy.log_probs(part.prompt_PS, part.token_PGT, mask_PGT)
        clip = settings.clip_low, settings.clip_high
        loss = grpo_loss(logp_PGT, part.logp_PGT, advantage_PG[index], mask_PGT, *clip)
        gradient_step(policy, optimizer, loss)
    return float(reward_PG.mean())


def evaluate(policy: Policy, seed: int) -> float:
    """pass@1 on problems of the training distribution that come much later in its stream."""
    _, reward_PG = roll(policy, TASK.training(seed, 1_000_000, 256), 4, seed=7)
    return float(reward_PG.mean())


def train(settings: Settings) -> tuple[float, float]:
    """Warm up, train with GRPO, print the progress; returns the accuracy before and after RL."""
    start = time.perf_counter()
    policy = Policy(build(Model(), TOKENS, settings.seed), torch.device("cpu"))
    warm_up(policy, settings)
    before = evaluate(policy, settings.seed)
    print(f"after the warm-up: pass@1 {before:.3f}  ({time.perf_counter() - start:.0f} s)")
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    for step in range(settings.steps):
        accuracy = global_step(policy, optimizer, step, settings)
        if (step + 1) % 10 == 0:
            print(f"step {step + 1:3d}: accuracy of the batch {accuracy:.3f}  ({time.perf_counter() - start:.0f} s)")
    after = evaluate(policy, settings.seed)
    print(f"after {settings.steps} steps of GRPO: pass@1 {after:.3f}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="GRPO on a toy task, in one file.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Settings.steps)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the model is too small to share
    train(Settings(seed=arguments.seed, steps=arguments.steps))
