"""Metrics of a global step, the same for every backend, from what sampling and updating leave behind.

Names are `group/name`. Shapes: P prompt groups of G rollouts; tokens of a `TokenBatch` as in `methods/base.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mcpo_cli.data.base import Problem
from mcpo_cli.records import GradientRow, GroupRow, MiniBatchRow, SampleRow
from mcpo_cli.statistics import directions

if TYPE_CHECKING:
    from torch import Tensor

    from mcpo_cli.methods import Method, TokenBatch, TokenLoss

BINS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))
"""Accuracy bins (low, high] for the query weight; the last one ends below 1."""

DRIFT_EDGES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Where the bins of |d| end, in units of delta; each sign has its own, but for the one around 0."""

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
    """Running sums that become the step's metrics: numerator and denominator by name."""

    def __init__(self) -> None:
        self.pairs: dict[str, list[float]] = {}

    def add(self, name: str, total: Tensor | float, count: Tensor | float) -> None:
        """Add to the numerator and the denominator of `name`."""
        pair = self.pairs.setdefault(name, [0.0, 0.0])
        pair[0] += float(total)
        pair[1] += float(count)

    def merge(self, other: Sums) -> None:
        """Add all of `other`."""
        for name, (total, count) in other.pairs.items():
            self.add(name, total, count)

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


def ratios(tokens: TokenBatch, method: Method) -> Sums:
    """Ratio statistics over the tokens of sequences that bear an advantage; call it without a graph."""
    sums = Sums()
    bears_BT = tokens.mask_BT & (tokens.advantage_B != 0)[:, None]
    count = bears_BT.sum()
    log_ratio_BT = tokens.logp_BT - tokens.logp_old_BT
    ratio_BT = log_ratio_BT.exp()
    up_BT = bears_BT & (tokens.advantage_B > 0)[:, None] & (ratio_BT > 1 + method.clip_high)
    down_BT = bears_BT & (tokens.advantage_B < 0)[:, None] & (ratio_BT < 1 - method.clip_low)
    sums.add("train/clip_high", up_BT.sum(), count)
    sums.add("train/clip_low", down_BT.sum(), count)
    # k3 of the old policy's samples: E[r - 1 - log r] = KL(old || new).
    sums.add("train/approx_kl", ((log_ratio_BT.expm1() - log_ratio_BT) * bears_BT).sum(), count)
    return sums


def difference(tokens: TokenBatch) -> Sums:
    """Mean |log p of the trainer - of the sampler| over tokens; the policy must be the one that sampled them."""
    sums = Sums()
    gap_BT = (tokens.logp_BT - tokens.logp_old_BT).abs()
    sums.add("sanity/logp_difference", (gap_BT * tokens.mask_BT).sum(), tokens.mask_BT.sum())
    return sums


def hinge(loss: TokenLoss, tokens: TokenBatch) -> tuple[Sums, Tensor]:
    """Numerators of the hinge's metrics, and felt_B: sequences with a token outside the drift budget."""
    sums = Sums()
    active_BT = (loss.hinge_BT != 0) & tokens.mask_BT & tokens.mastered_B[:, None]
    sums.add("hinge/tokens_active", active_BT.sum(), 0.0)
    penalty_B = (loss.hinge_BT * tokens.mask_BT).sum(-1) * loss.hinge_weight_B
    sums.add("hinge/penalty", penalty_B.sum(), 0.0)
    return sums, active_BT.any(-1)


def policy_loss(loss: TokenLoss, tokens: TokenBatch) -> Sums:
    """Numerator of the mini-batch's clipped surrogate, as a loss."""
    sums = Sums()
    sums.add("train/policy_loss", ((loss.policy_BT * tokens.mask_BT).sum(-1) * loss.policy_weight_B).sum(), 0.0)
    return sums


def drift(tokens: TokenBatch, budget: float) -> Sums:
    """How many tokens of mastered prompts have their d = log pi - log pi_old (Eq. 7) in each of the `drift_bins`."""
    d_N = (tokens.logp_BT - tokens.logp_anchor_BT)[tokens.mask_BT & tokens.mastered_B[:, None]]
    # A value on an edge belongs to the inner bin, as a token at the budget itself feels no hinge.
    beyond_N = (d_N.abs()[:, None] > d_N.new_tensor(DRIFT_EDGES) * budget).sum(-1)
    bin_N = beyond_N * d_N.sign().long() + len(DRIFT_EDGES)
    return _drift_sums(bin_N.bincount(minlength=2 * len(DRIFT_EDGES) + 1).tolist())


def undrifted(tokens: int) -> Sums:
    """`drift` where the policy still is the anchor: every one of the mastered prompts' `tokens` has d = 0."""
    return _drift_sums([tokens if low < 0 < high else 0 for low, high in drift_bins()])


def drift_bins() -> list[tuple[float, float]]:
    """The bins of `MiniBatchRow.d_counts` as (low, high), in units of delta; the one in the middle holds 0."""
    edges = (*(-edge for edge in reversed(DRIFT_EDGES)), *DRIFT_EDGES)
    return list(zip((-math.inf, *edges), (*edges, math.inf), strict=True))


def mini_batch_row(step: int, number: int, sums: Sums, method: Method, mastered: int, felt: int) -> MiniBatchRow:
    """The row of a gradient step, from the sums over its micro-batches and ranks.

    Args:
        sums: of `policy_loss`, `hinge` and `drift`, with the tokens of mastered prompts as the denominator of
            `hinge/tokens_active`.
        mastered, felt: prompts of the mini-batch that are, and those with a token outside the drift budget.
    """
    nothing = (0.0, 0.0)
    row = MiniBatchRow(step=step, mini_batch=number, policy_loss=sums.pairs.get("train/policy_loss", nothing)[0])
    if method.anchors_mastered:
        active, tokens = sums.pairs.get("hinge/tokens_active", nothing)
        row["hinge_loss"] = sums.pairs.get("hinge/penalty", nothing)[0]
        row["mastered"], row["felt"] = mastered, felt
        row["tokens"], row["tokens_active"] = int(tokens), int(active)
        row["d_counts"] = [int(sums.pairs.get(name, nothing)[0]) for name in _drift_names()]
    return row


def _drift_sums(counts: Sequence[int]) -> Sums:
    """One count a bin, as sums that do not become metrics of the step."""
    sums = Sums()
    for name, count in zip(_drift_names(), counts, strict=True):
        sums.add(name, count, 0.0)
    return sums


def _drift_names() -> list[str]:
    return [f"hinge/d_{place:02d}" for place in range(2 * len(DRIFT_EDGES) + 1)]


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
