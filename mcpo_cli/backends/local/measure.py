"""Metrics of a global step, from what sampling and updating leave behind: nothing is run for them.

Names are `group/name`. Those of the gradient steps (`train/grad_norm`, `train/clip_*`, `hinge/*`) come
from `update.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor
from transformers import PreTrainedTokenizerFast

from mcpo_cli.backends.local.sampler import Rollouts
from mcpo_cli.store.records import GroupRow, SampleRow

if TYPE_CHECKING:
    from mcpo_cli.backends.local.train import Sampled

BINS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))
"""Accuracy bins (low, high] for the query weight; the last one ends below 1."""


def sampled(rollouts: Rollouts, correct_PG: Tensor, reward_PG: Tensor) -> dict[str, float]:
    """Of all groups sampled in the step, before any filter: shares of prompts, lengths in tokens, entropy in nats."""
    p_P = correct_PG.double().mean(-1)
    mastered_P, wrong_P = correct_PG.all(-1), ~correct_PG.any(-1)
    tokens = rollouts.length_PG.sum()
    return {
        "train/reward": float(reward_PG.mean()),
        "train/accuracy": float(p_P.mean()),
        "train/response_length": float(rollouts.length_PG.double().mean()),
        "train/truncated": float((~rollouts.ended_PG).double().mean()),
        "train/entropy": float(rollouts.entropy_PGT.sum() / tokens),
        "mastery/mastered": float(mastered_P.double().mean()),
        "mastery/majority_correct": float(((p_P > 0.5) & ~mastered_P).double().mean()),
        "mastery/minority": float(((p_P <= 0.5) & ~wrong_P).double().mean()),
        "mastery/all_wrong": float(wrong_P.double().mean()),
    }


def weights(correct_PG: Tensor, advantage_PG: Tensor) -> dict[str, float]:
    """Effective query weight W = mean_i c_i A_i (Eq. 6) of the batch's groups, a mean an accuracy bin.

    A bin without prompts has no value.
    """
    p_P = correct_PG.double().mean(-1)
    weight_P = (correct_PG * advantage_PG).mean(-1)
    found = {}
    for low, high in BINS:
        inside = (p_P > low) & (p_P <= high) & (p_P < 1)
        if inside.any():
            found[f"weight/p_{low:.2f}_{high:.2f}"] = float(weight_P[inside].mean())
    return found


def sampling(prompts: int, kept: int, batch: int) -> dict[str, float]:
    """How many prompts were sampled for the batch, and the share of them that entered it."""
    return {"sampling/prompts": float(prompts), "sampling/kept": kept / prompts, "sampling/rounds": prompts / batch}


def speed(seconds: Mapping[str, float], rollouts: Rollouts) -> dict[str, float]:
    """Seconds by phase, and sampled response tokens per second of the whole step."""
    total = sum(seconds.values())
    rate = float(rollouts.length_PG.sum()) / total
    phases = {f"perf/seconds_{name}": value for name, value in seconds.items()}
    return {**phases, "perf/seconds": total, "perf/tokens_per_second": rate}


def group_rows(step: int, batch: Sampled, in_batch: set[int]) -> list[GroupRow]:
    """One row a prompt group that was sampled in this step."""
    p_P = batch.correct_PG.double().mean(-1).tolist()
    length_P = batch.rollouts.length_PG.double().mean(-1).tolist()
    return [
        GroupRow(step=step, prompt=problem.text, p=p, mean_length=length, kept=i in in_batch)
        for i, (problem, p, length) in enumerate(zip(batch.problems, p_P, length_P, strict=True))
    ]


def sample_rows(step: int, batch: Sampled, count: int, tokenizer: PreTrainedTokenizerFast) -> list[SampleRow]:
    """The full responses of the first `count` groups."""
    rows = []
    for i, problem in enumerate(batch.problems[:count]):
        for j, length in enumerate(batch.rollouts.length_PG[i].tolist()):
            text = str(tokenizer.decode(batch.rollouts.token_PGT[i, j, :length]))
            correct = bool(batch.correct_PG[i, j])
            rows.append(SampleRow(step=step, prompt=problem.text, response=text, gold=problem.gold, correct=correct))
    return rows
