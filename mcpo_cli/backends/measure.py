"""Metrics of a global step, the same for every backend, from what sampling and updating leave behind.

Names are `group/name`. Shapes: P prompt groups of G rollouts; tokens of a `TokenBatch` as in `methods/base.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mcpo_cli.data.base import Problem
from mcpo_cli.records import GradientRow, GroupRow, MiniBatchRow, SampleRow
from mcpo_cli.statistics import directions

if TYPE_CHECKING:
    from torch import Tensor

    from mcpo_cli.methods import Report, TokenBatch, TokenLoss

BINS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))
"""Accuracy bins (low, high] for the query weight; the last one ends below 1."""

BARE_TOKENS = 16
"""A response of math with fewer tokens has room for the answer's line ("Answer: ...", or a box) and little else."""
DOUBT = 4.0
"""Standard errors: chance alone goes beyond so many about once in 30 000 steps."""


@dataclass(frozen=True)
class Graded:
    """What became of all groups that were sampled in a step, before any filter.

    length_PG: tokens, the end token included. ended_PG: closed by the end token; the others were cut.
    same_P: see `equal_pairs`. entropy_PG: of the policy, nats, mean over the tokens of each rollout. logp_PG:
    log-probability of each whole rollout under the distribution that it was drawn from. None where not known.
    """

    problems: Sequence[Problem]
    correct_PG: Tensor
    reward_PG: Tensor
    length_PG: Tensor
    ended_PG: Tensor
    same_P: Tensor
    entropy_PG: Tensor | None = None
    logp_PG: Tensor | None = None


class Sums:
    """Running sums that become metrics: numerator and denominator by name.

    Of metrics that are shares of prompts the prompts themselves are kept until `close`, as the rollouts of one prompt
    may be spread over micro-batches and ranks.
    """

    def __init__(self) -> None:
        self.pairs: dict[str, list[float]] = {}
        self.prompts: dict[str, tuple[set[int], set[int]]] = {}

    def add(self, name: str, total: Tensor | float, count: Tensor | float) -> None:
        """Add to the numerator and the denominator of `name`."""
        pair = self.pairs.setdefault(name, [0.0, 0.0])
        pair[0] += float(total)
        pair[1] += float(count)

    def flag(self, name: str, flagged: Iterable[int], among: Iterable[int]) -> None:
        """Add prompts to both sides of the share `name`."""
        both = self.prompts.setdefault(name, (set(), set()))
        both[0].update(flagged)
        both[1].update(among)

    def merge(self, other: Sums) -> None:
        """Add all of `other`."""
        for name, (total, count) in other.pairs.items():
            self.add(name, total, count)
        for name, (flagged, among) in other.prompts.items():
            self.flag(name, flagged, among)

    def close(self) -> None:
        """The sums are those of one whole mini-batch: count its prompts, and each loss as one value."""
        for name, (flagged, among) in self.prompts.items():
            self.add(name, len(flagged), len(among))
        self.prompts = {}
        for name, pair in self.pairs.items():
            if name.endswith("_loss"):
                pair[1] = 1.0

    def means(self) -> dict[str, float]:
        """The quotients; a name whose denominator stayed 0 has no value and is left out."""
        return {name: total / count for name, (total, count) in self.pairs.items() if count}


def equal_pairs(token_GT: Tensor) -> Tensor:
    """The share of pairs of G >= 2 rollouts that are identical; leading axes are kept.

    token_GT: responses padded with what none of them holds before its end.
    """
    G = token_GT.shape[-2]
    same_GG = token_GT.new_ones((*token_GT.shape[:-1], G)).bool()
    # A token at a time: all at once takes G times the memory of the responses.
    for token_G in token_GT.unbind(-1):
        same_GG &= token_G[..., :, None] == token_G[..., None, :]
    return (same_GG.double().sum((-2, -1)) - G) / (G * (G - 1))


def difference(tokens: TokenBatch) -> Sums:
    """Mean |log p of the trainer - of the sampler| over tokens; the policy must be the one that sampled them."""
    sums = Sums()
    gap_BT = (tokens.logp_BT - tokens.logp_old_BT).abs()
    sums.add("sanity/logp_difference", (gap_BT * tokens.mask_BT).sum(), tokens.mask_BT.sum())
    return sums


def losses(loss: TokenLoss, mask_BT: Tensor) -> Sums:
    """The value of each term, `train/<name>_loss`; parts of a mini-batch add up to its loss."""
    sums = Sums()
    for term in loss.terms:
        sums.add(f"train/{term.name}_loss", term.sum(mask_BT), 0.0)
    return sums


def reported(report: Report, group_B: Tensor) -> Sums:
    """What a method reports of sequences of the prompts `group_B`."""
    sums = Sums()
    for name, (total, count) in report.sums.items():
        sums.add(name, total, count)
    for name, flags in report.prompts.items():
        flagged, among = (set(group_B[flag_B].tolist()) for flag_B in flags)
        sums.flag(name, flagged, among)
    return sums


def mini_batch_row(step: int, number: int, sums: Sums) -> MiniBatchRow:
    """The row of a gradient step, from the sums over its micro-batches and ranks; closes `sums`."""
    sums.close()
    return MiniBatchRow(step=step, mini_batch=number, sums={name: list(pair) for name, pair in sums.pairs.items()})


def answer_classes(answers: Sequence[Sequence[str | None]]) -> list[list[int]]:
    """answer_PG: a number for each distinct answer of a group, in order of appearance; -1 where there is none."""
    groups = []
    for answers_G in answers:
        numbers = {text: number for number, text in enumerate(dict.fromkeys(filter(None, answers_G)))}
        groups.append([numbers.get(text, -1) if text else -1 for text in answers_G])
    return groups


def sampled(graded: Graded, entropy: float) -> dict[str, float]:
    """Shares of prompts, lengths in tokens; entropy: mean over tokens, nats."""
    p_P = graded.correct_PG.double().mean(-1)
    mastered_P, wrong_P = graded.correct_PG.all(-1), ~graded.correct_PG.any(-1)
    return {
        "train/reward": float(graded.reward_PG.mean()),
        "train/accuracy": float(p_P.mean()),
        "train/response_length": float(graded.length_PG.double().mean()),
        "train/truncated": float((~graded.ended_PG).double().mean()),
        "train/entropy": entropy,
        "mastery/mastered": float(mastered_P.double().mean()),
        "mastery/majority_correct": float(((p_P > 0.5) & ~mastered_P).double().mean()),
        "mastery/minority": float(((p_P <= 0.5) & ~wrong_P).double().mean()),
        "mastery/all_wrong": float(wrong_P.double().mean()),
    }


def sanity(graded: Graded, *, reasons: bool) -> dict[str, float]:
    """What should not be, as shares; `runs/sanity.py` holds the limits.

    reasons: right answers take reasoning, so that very short right responses are suspicious.

    For independent draws from a distribution q the chance that two are equal is sum_y q(y)^2 = E[q(y)]: so the mean of
    q(y) over the rollouts themselves is what `duplicates` should be, without bias, and more of them shows draws that
    depend on each other (seeds that repeat). `duplicates_excess` is how many more, 0 within DOUBT standard errors over
    the prompts.
    """
    right_PG = graded.correct_PG.bool()
    values = {
        "sanity/truncated": float((~graded.ended_PG).double().mean()),
        "sanity/duplicates": float(graded.same_P.mean()),
    }
    if reasons and right_PG.any():
        values["sanity/bare_right"] = float((graded.length_PG < BARE_TOKENS)[right_PG].double().mean())
    if graded.logp_PG is not None:
        expected_P = graded.logp_PG.double().exp().mean(-1)
        values["sanity/duplicates_expected"] = float(expected_P.mean())
        if (P := len(expected_P)) > 1:
            excess_P = graded.same_P - expected_P
            excess, error = float(excess_P.mean()), float(excess_P.std()) / P**0.5
            values["sanity/duplicates_excess"] = excess if excess > DOUBT * error else 0.0
    return values


def weights(correct_PG: Tensor, advantage_PG: Tensor) -> dict[str, float]:
    """How the batch's weight is spread, from the advantages that it trains on.

    Effective query weight W = mean_i (c_i - p) A_i, a mean an accuracy bin: mean_i c_i A_i (Eq. 6) wherever the
    advantages of a group have the mean 0, and blind to a constant that is added to all of them. The share of
    sum |W| on prompts with 0 < p <= 0.5. Kish's effective sample size (sum |A|)^2 / sum A^2, in rollouts. A bin
    without prompts has no value, nor has a batch without an advantage.
    """
    p_P = correct_PG.double().mean(-1)
    weight_P = ((correct_PG.double() - p_P[:, None]) * advantage_PG).mean(-1)
    sums = Sums()
    for low, high in BINS:
        inside_P = (p_P > low) & (p_P <= high) & (p_P < 1)
        sums.add(f"weight/p_{low:.2f}_{high:.2f}", weight_P[inside_P].sum(), inside_P.sum())
    sums.add("weight/share_minority", weight_P[p_P <= 0.5].abs().sum(), weight_P.abs().sum())
    sums.add("weight/effective_sample", advantage_PG.abs().sum() ** 2, (advantage_PG**2).sum())
    return sums.means()


def gradients(rows: Sequence[GradientRow], prompts: float) -> dict[str, float]:
    """Of the prompts whose gradients were measured in a step; `prompts` with 0 < p < 1 make a mini-batch on average.

    `gradient/cosine_mastered` and `gradient/signal_to_noise` as in `statistics.directions`, and the share of the summed
    gradient norm by accuracy bin.
    """
    values = {
        "gradient/cosine_mastered": directions.cosine(rows),
        "gradient/signal_to_noise": directions.signal_to_noise(rows, prompts),
    }
    update = directions.mixed(rows)
    total = sum(row["norm"] for row in update)
    for low, high in BINS if total else ():
        inside = sum(row["norm"] for row in update if low < row["p"] <= high)
        values[f"gradient/share_{low:.2f}_{high:.2f}"] = inside / total
    return {name: value for name, value in values.items() if not math.isnan(value)}


def sampling(prompts: int, kept: int, batch: int) -> dict[str, float]:
    """How many prompts were sampled for the batch, and the share of them that entered it."""
    return {"sampling/prompts": float(prompts), "sampling/kept": kept / prompts, "sampling/rounds": prompts / batch}


def speed(seconds: Mapping[str, float], tokens: float) -> dict[str, float]:
    """Seconds by phase, and sampled response tokens per second of the whole step."""
    total = sum(seconds.values())
    phases = {f"perf/seconds_{name}": value for name, value in seconds.items()}
    return {**phases, "perf/seconds": total, "perf/tokens_per_second": tokens / total}


def group_rows(step: int, graded: Graded, in_batch: set[int]) -> list[GroupRow]:
    """One row a prompt group that was sampled in this step; in_batch: places of those that were trained on."""
    columns = (
        graded.correct_PG.double().mean(-1),
        graded.length_PG.double().mean(-1),
        (~graded.ended_PG).double().mean(-1),
        graded.same_P,
    )
    rows = [
        GroupRow(
            step=step, prompt=problem.text, p=p, mean_length=length, kept=i in in_batch, truncated=cut, duplicates=same
        )
        for i, (problem, p, length, cut, same) in enumerate(
            zip(graded.problems, *(column.tolist() for column in columns), strict=True)
        )
    ]
    for name, entropy_P in _entropies(graded).items():
        for row, entropy in zip(rows, entropy_P.tolist(), strict=True):
            if not math.isnan(entropy):
                row[name] = entropy
    return rows


def _entropies(graded: Graded) -> dict[Literal["entropy", "entropy_right", "entropy_wrong"], Tensor]:
    """Mean over the tokens of a group's rollouts, of the right and of the wrong ones; NaN where there are none."""
    if graded.entropy_PG is None:
        return {}
    total_PG = graded.entropy_PG.double() * graded.length_PG
    right_PG = graded.correct_PG.bool()

    def mean_P(of_PG: Tensor) -> Tensor:
        return (total_PG * of_PG).sum(-1) / (graded.length_PG * of_PG).sum(-1)

    return {
        "entropy": mean_P(right_PG | ~right_PG),
        "entropy_right": mean_P(right_PG),
        "entropy_wrong": mean_P(~right_PG),
    }


def sample_rows(step: int, graded: Graded, responses: Sequence[Sequence[str]]) -> list[SampleRow]:
    """The full responses of the first groups, as many as `responses` has."""
    return [
        SampleRow(step=step, prompt=problem.text, response=text, gold=problem.gold, correct=bool(correct))
        for problem, texts, correct_G in zip(graded.problems, responses, graded.correct_PG, strict=False)
        for text, correct in zip(texts, correct_G, strict=True)
    ]
