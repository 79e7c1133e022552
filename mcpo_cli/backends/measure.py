"""Metrics of a global step, computed from its rollouts and gradient steps in the same way for every backend.

Names are `group/name`. Shapes: P prompt groups of G rollouts; tokens of a `TokenBatch` as in `methods/base.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import psutil

from mcpo_cli.backends.graded import Graded
from mcpo_cli.config import cost
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.records import AXES, BINS, EvalRow, GradientRow, GroupRow, MiniBatchRow, SampleRow, StepRow
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import directions

if TYPE_CHECKING:
    from torch import Tensor

    from mcpo_cli.methods import Report, TokenBatch, TokenLoss


BARE_TOKENS = 16
"""A math response with fewer tokens holds the answer line ("Answer: ...", or a box) and hardly any reasoning."""
DOUBT = 4.0
"""Threshold in standard errors; chance alone exceeds it about once in 30 000 steps."""


class MetricSums:
    """Running sums that become metrics: a numerator and a denominator per name.

    For metrics that are shares of prompts, the prompts themselves are kept until `close`, because the rollouts of one
    prompt may be spread over micro-batches and ranks.
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
        """Add prompts to the numerator and the denominator of the share `name`."""
        pair = self.prompts.setdefault(name, (set(), set()))
        pair[0].update(flagged)
        pair[1].update(among)

    def merge(self, other: MetricSums) -> None:
        """Add all of `other`."""
        for name, (total, count) in other.pairs.items():
            self.add(name, total, count)
        for name, (flagged, among) in other.prompts.items():
            self.flag(name, flagged, among)

    def close(self) -> None:
        """Finish a whole mini-batch: count its prompts, and count each loss as one value."""
        for name, (flagged, among) in self.prompts.items():
            self.add(name, len(flagged), len(among))
        self.prompts = {}
        for name, pair in self.pairs.items():
            if name.endswith("_loss"):
                pair[1] = 1.0

    def means(self) -> dict[str, float]:
        """The quotients; names with denominator 0 are left out."""
        return {name: total / count for name, (total, count) in self.pairs.items() if count}


def difference(tokens: TokenBatch) -> MetricSums:
    """Mean over tokens of |trainer log p - sampler log p|; the trainer's policy must have sampled the tokens."""
    sums = MetricSums()
    gap_BT = (tokens.logp_BT - tokens.logp_old_BT).abs()
    sums.add("sanity/logp_difference", (gap_BT * tokens.mask_BT).sum(), tokens.mask_BT.sum())
    return sums


def losses(loss: TokenLoss, mask_BT: Tensor) -> MetricSums:
    """The value of each loss term as `train/<name>_loss`; the values of micro-batches add up to the mini-batch's."""
    sums = MetricSums()
    for term in loss.terms:
        sums.add(f"train/{term.name}_loss", term.sum(mask_BT), 0.0)
    return sums


def reported(report: Report, group_B: Tensor) -> MetricSums:
    """A method's report on sequences that belong to the prompts `group_B`, as sums."""
    sums = MetricSums()
    for name, (total, count) in report.sums.items():
        sums.add(name, total, count)
    for name, flags in report.prompts.items():
        flagged, among = (set(group_B[flag_B].tolist()) for flag_B in flags)
        sums.flag(name, flagged, among)
    return sums


def mini_batch_row(step: int, number: int, sums: MetricSums) -> MiniBatchRow:
    """The row of a gradient step, from the sums over its micro-batches and ranks; closes `sums`."""
    sums.close()
    return MiniBatchRow(step=step, mini_batch=number, sums={name: list(pair) for name, pair in sums.pairs.items()})


def answer_classes(answers: Sequence[Sequence[str | None]]) -> list[list[int]]:
    """answer_PG: distinct answers of a group, numbered in order of appearance; -1 where a rollout has no answer."""
    groups = []
    for answers_G in answers:
        numbers = {text: number for number, text in enumerate(dict.fromkeys(filter(None, answers_G)))}
        groups.append([numbers.get(text, -1) if text else -1 for text in answers_G])
    return groups


def global_step(
    step: int,
    spec: RunSpec,
    graded: Graded,
    in_batch: Sequence[int],
    advantage_PG: Tensor,
    *,
    entropy: float,
    updates: Mapping[str, float],
    probed: Mapping[str, float],
    costs: Mapping[str, float],
    seconds: Mapping[str, float],
    of_backend: Mapping[str, float],
) -> StepRow:
    """The row of a global step.

    Args:
        graded: all sampled groups.
        in_batch: the indices of the groups that were trained on, in the order of `advantage_PG`.
        entropy: mean over tokens, in nats.
        updates: metrics of the gradient steps.
        probed: metrics of probes.
        costs: totals, including this step.
        seconds: by phase.
        of_backend: metrics that only this backend has.
    """
    informed_P, informed_groups = graded.informed_P.tolist(), graded.informed()
    group_indices = [index for index in in_batch if informed_P[index]]
    advantage_rows = [row for row, index in enumerate(in_batch) if informed_P[index]]
    batch = graded.correct_PG[group_indices], advantage_PG[advantage_rows], graded.rollouts_P[group_indices]
    metrics = {
        **sampled(informed_groups, entropy),
        **updates,
        **sanity(informed_groups, reasons=spec.task.reasons),
        **weights(*batch),
        **probed,
        **signs(*batch),
        **sampling(len(graded.problems), len(in_batch), spec.train.prompts),
        **costs,
        **speed(seconds, float(graded.length_PG.sum())),
        **ungraded(graded),
        **of_backend,
    }
    return StepRow(step=step, time=time.time(), metrics=metrics)


def sampled(graded: Graded, entropy: float) -> dict[str, float]:
    """Metrics of all sampled groups: shares, and lengths in tokens. entropy: mean over tokens, in nats.

    Accuracy and `mastery/...` are means over groups, reward and length over rollouts.
    """
    p_P, mastered_P, wrong_P = graded.p_P, graded.mastered_P, ~graded.correct_PG.any(-1)
    wrong_N = graded.length_PG[~graded.correct_PG.bool() & graded.judged_PG].double()
    length = {"train/wrong_length": float(wrong_N.mean())} if len(wrong_N) else {}
    return length | {
        "train/reward": float(graded.reward_PG[graded.judged_PG].double().mean()),
        "train/accuracy": float(p_P.mean()),
        "train/response_length": graded.mean(graded.length_PG),
        "train/entropy": entropy,
        "mastery/mastered": float(mastered_P.double().mean()),
        "mastery/majority_correct": float(((p_P > 0.5) & ~mastered_P).double().mean()),
        "mastery/minority": float(((p_P <= 0.5) & ~wrong_P).double().mean()),
        "mastery/all_wrong": float(wrong_P.double().mean()),
    }


def sanity(graded: Graded, *, reasons: bool) -> dict[str, float]:
    """Health metrics, each a share; `runs/sanity.py` holds their limits.

    reasons: whether correct answers take reasoning, so that very short correct responses are suspicious.

    Two independent draws from a distribution q are equal with probability sum_y q(y)^2 = E[q(y)]. The mean of q(y) over
    the rollouts is therefore an unbiased estimate of the expected `duplicates`; more duplicates show dependent draws
    (repeated seeds). `duplicates_excess` is the difference, set to 0 within DOUBT standard errors over the prompts.
    """
    right_PG = graded.correct_PG.bool()
    values = {
        "sanity/truncated": graded.mean(graded.truncated_PG),
        "sanity/duplicates": float(graded.same_P.mean()),
    }
    if reasons and right_PG.any():
        values["sanity/bare_right"] = float((graded.length_PG < BARE_TOKENS)[right_PG].double().mean())
    if graded.logp_PG is not None:
        expected_P = graded.mean_P(graded.logp_PG.double().exp())
        values["sanity/duplicates_expected"] = float(expected_P.mean())
        if (P := len(expected_P)) > 1:
            excess_P = graded.same_P - expected_P
            excess, error = float(excess_P.mean()), float(excess_P.std()) / P**0.5
            values["sanity/duplicates_excess"] = excess if excess > DOUBT * error else 0.0
    return values


def weights(correct_PG: Tensor, advantage_PG: Tensor, rollouts_P: Tensor) -> dict[str, float]:
    """The distribution of the batch's weight over prompts, from the advantages used in training; 0 in empty places.

    The mean effective query weight W = mean_i (c_i - p) A_i per accuracy bin. W equals mean_i c_i A_i (Eq. 6) if a
    group's advantages have mean 0, and ignores a constant added to all of them. Also the share of sum |W| on prompts
    with 0 < p <= 0.5, and Kish's effective sample size (sum |A|)^2 / sum A^2, in rollouts. Bins without prompts and
    batches without nonzero advantages yield no value.
    """
    p_P = correct_PG.double().sum(-1) / rollouts_P
    weight_P = ((correct_PG.double() - p_P[:, None]) * advantage_PG).sum(-1) / rollouts_P
    sums = MetricSums()
    for low, high in BINS:
        inside_P = (p_P > low) & (p_P <= high) & (p_P < 1)
        sums.add(f"weight/p_{low:.2f}_{high:.2f}", weight_P[inside_P].sum(), inside_P.sum())
    sums.add("weight/share_minority", weight_P[p_P <= 0.5].abs().sum(), weight_P.abs().sum())
    sums.add("weight/effective_sample", advantage_PG.abs().sum() ** 2, (advantage_PG**2).sum())
    return sums.means()


def signs(correct_PG: Tensor, advantage_PG: Tensor, rollouts_P: Tensor) -> dict[str, float]:
    """Shares of the batch's rollouts: without advantage, and with one of the wrong sign (a correct answer below 0)."""
    flipped_PG = ((correct_PG.double() - 0.5) * advantage_PG) < 0
    rollouts, flipped, nonzero = (int(mask.sum()) for mask in (rollouts_P, flipped_PG, advantage_PG != 0))
    return {"advantage/zero": (rollouts - nonzero) / rollouts, "advantage/flipped": flipped / rollouts}


def gradients(rows: Sequence[GradientRow], prompts: float) -> dict[str, float]:
    """Metrics of the prompts whose gradients were measured in a step.

    `gradient/cosine_mastered` and `gradient/signal_to_noise` as in `statistics.directions`, and each accuracy bin's
    share of the summed gradient norm. prompts: mean number of prompts with 0 < p < 1 in a mini-batch.
    """
    values = {
        "gradient/cosine_mastered": directions.cosine(rows),
        "gradient/signal_to_noise": directions.signal_to_noise(rows, prompts),
    }
    mixed_rows = directions.mixed(rows)
    total = sum(row["norm"] for row in mixed_rows)
    for low, high in BINS if total else ():
        bin_norm = sum(row["norm"] for row in mixed_rows if low < row["p"] <= high)
        values[f"gradient/share_{low:.2f}_{high:.2f}"] = bin_norm / total
    return {name: value for name, value in values.items() if not math.isnan(value)}


def sampling(prompts: int, kept: int, batch: int) -> dict[str, float]:
    """The number of prompts sampled for the batch, and the share that entered it."""
    return {"sampling/prompts": float(prompts), "sampling/kept": kept / prompts, "sampling/rounds": prompts / batch}


def ungraded(graded: Graded) -> dict[str, float]:
    """`grading/infra_errors`: the share of rollouts that could not be graded; absent if all were."""
    rollouts = int(graded.drawn_PG.sum())
    errors = rollouts - int(graded.judged_PG.sum())
    return {"grading/infra_errors": errors / rollouts} if errors else {}


def speed(seconds: Mapping[str, float], tokens: float) -> dict[str, float]:
    """Seconds per phase, and sampled response tokens per second of the whole step."""
    total = sum(seconds.values())
    phases = {f"perf/seconds_{name}": value for name, value in seconds.items()}
    return {**phases, "perf/seconds": total, "perf/tokens_per_second": tokens / total}


def process(cpu_seconds: float, seconds: float) -> dict[str, float]:
    """CPU time and memory of this process, under MLflow's prefix for system metrics, which have a separate page.

    Args:
        cpu_seconds: CPU time of the process (all threads) during a global step, in seconds.
        seconds: duration of the global step; 100 % is one core.
    """
    usage = {"system/process_cpu_utilization_percentage": 100 * cpu_seconds / seconds}
    return {**usage, "system/process_memory_usage_megabytes": psutil.Process().memory_info().rss / 1e6}


def group_rows(step: int, graded: Graded, in_batch: set[int]) -> list[GroupRow]:
    """One row per informed group of this step; in_batch: indices of the groups that were trained on."""
    columns = (
        graded.p_P,
        graded.mean_P(graded.length_PG),
        graded.mean_P(graded.truncated_PG),
        graded.same_P,
    )
    rows = [
        GroupRow(
            step=step, prompt=problem.text, p=p, mean_length=length, kept=i in in_batch, truncated=cut, duplicates=pairs
        )
        for i, (problem, p, length, cut, pairs) in enumerate(
            zip(graded.problems, *(column.tolist() for column in columns), strict=True)
        )
    ]
    for name, entropy_P in _entropies(graded).items():
        for row, entropy in zip(rows, entropy_P.tolist(), strict=True):
            if not math.isnan(entropy):
                row[name] = entropy
    if not graded.judged_PG.all():
        for row, rollouts in zip(rows, graded.rollouts_P.tolist(), strict=True):
            row["rollouts"] = rollouts
    return [row for row, is_informed in zip(rows, graded.informed_P.tolist(), strict=True) if is_informed]


def _entropies(graded: Graded) -> dict[Literal["entropy", "entropy_right", "entropy_wrong"], Tensor]:
    """Mean entropy over the tokens of all, correct and incorrect rollouts of each group; NaN without such rollouts."""
    if graded.entropy_PG is None:
        return {}
    total_PG = graded.entropy_PG.double() * graded.length_PG
    right_PG = graded.correct_PG.bool()

    def mean_P(mask_PG: Tensor) -> Tensor:
        return (total_PG * mask_PG).sum(-1) / (graded.length_PG * mask_PG).sum(-1)

    return {
        "entropy": mean_P(right_PG | ~right_PG),
        "entropy_right": mean_P(right_PG),
        "entropy_wrong": mean_P(~right_PG & graded.judged_PG),
    }


def sample_rows(step: int, graded: Graded, responses: Sequence[Sequence[str]]) -> list[SampleRow]:
    """The full graded responses of the first `len(responses)` groups."""
    groups = zip(graded.problems, responses, graded.correct_PG, graded.judged_PG, strict=False)
    return [
        SampleRow(step=step, prompt=problem.text, response=text, gold=problem.gold, correct=bool(correct))
        for problem, texts, correct_G, judged_G in groups
        for text, correct, is_judged in zip(texts, correct_G[: len(texts)], judged_G[: len(texts)], strict=True)
        if is_judged
    ]


def eval_row(step: int, tier: str, problem: str, counts: tuple[int, int, int]) -> EvalRow:
    """The row of one held-out problem; counts: samples drawn, graded and correct.

    Raises:
        RunFailed: none could be graded.
    """
    samples, n, c = counts
    if n == 0:
        raise RunFailed(
            f"no answer to this problem could be graded: {problem[:200]}",
            fix="remove the problem, or fix its grader, then rerun the same command: all training so far is kept",
            code="ungraded",
        )
    row = EvalRow(step=step, tier=tier, problem=problem, n=n, c=c)
    if n < samples:
        row["ungraded"] = samples - n
    return row


class CostTotals:
    """Running totals of a run over all its attempts, which every row of a global step records.

    `cost/rollouts`: rollouts sampled for training, including groups that dynamic sampling dropped, and responses that a
    method only compares with (`greedy_reward`).
    `cost/sampled_tokens`: their response tokens. `cost/trained_tokens`: tokens, including the prompt's, of sequences
    that had a forward and a backward pass. `cost/gradient_steps`: optimizer steps. `cost/flops`: operations that
    `cost.operations` estimates from these tokens. `cost/seconds`: seconds of sampling and update. Totals exclude
    the rollouts of probes and evaluations, and the time that probes, evaluations and records take.
    """

    def __init__(self, spec: RunSpec, journal: Journal, step: int) -> None:
        """Continue from the totals that the journal holds of global step `step`; from 0 if it holds none."""
        rows = {row["step"]: row["metrics"] for row in journal.steps()}
        self._spec, self._step = spec, step
        self.totals = {name: rows[step][name] if step in rows else 0.0 for name in AXES}
        self._rollouts_before = 0.0
        self._untrained = (0, 0)

    def add_untrained(self, *, rollouts: int, sampled_tokens: int) -> None:
        """Count rollouts that a method compares with and does not train on, in the step that is added next."""
        self._untrained = self._untrained[0] + rollouts, self._untrained[1] + sampled_tokens

    def add(
        self, *, rollouts: int, sampled_tokens: int, trained_tokens: int, gradient_steps: int, seconds: float
    ) -> None:
        """Add one global step."""
        rollouts, sampled_tokens = rollouts + self._untrained[0], sampled_tokens + self._untrained[1]
        self._untrained = (0, 0)
        operations = cost.operations(self._spec, sampled_tokens, trained_tokens)
        values = (rollouts, sampled_tokens, trained_tokens, gradient_steps, operations, seconds)
        self._step, self._rollouts_before = self._step + 1, self.totals["cost/rollouts"]
        self.totals = {name: self.totals[name] + value for name, value in zip(AXES, values, strict=True)}

    @property
    def evaluation_due(self) -> bool:
        """True if the policy is evaluated after the global step that was added last."""
        rollouts = {self._step - 1: self._rollouts_before, self._step: self.totals["cost/rollouts"]}
        return self._step in eval_steps(self._spec, rollouts)
