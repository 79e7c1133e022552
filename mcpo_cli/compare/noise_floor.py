"""The noise floor of a gate: how often the baseline, compared with itself, would break it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np

from mcpo_cli.compare import gate
from mcpo_cli.compare.comparison import Comparison, Question, differences_of
from mcpo_cli.compare.gate import Gate, NoiseFloor
from mcpo_cli.compare.rules import GatePolicy
from mcpo_cli.compare.scores import Arm, Metric

MOST = 100
"""Most gates of the baseline against itself; if there are more, this number of gates is drawn."""


def gated(comparison: Comparison, policy: GatePolicy, question: Question) -> Gate:
    """The gate of a comparison, with its noise floor.

    Raises:
        ConfigError: see `gate.judge`.
    """
    return replace(gate.judge(comparison, policy), noise=noise_floor(comparison, policy, question))


def noise_floor(comparison: Comparison, policy: GatePolicy, question: Question) -> NoiseFloor | None:
    """Judge the required rules on every choice of the baseline's repeats (training seeds, or logs) against its others.

    The number of chosen repeats is the smallest number that another arm has, up to half of the baseline's. None if the
    baseline has one repeat, or different repeats on its benchmarks.
    """
    part = comparison.slices[0]
    compared = set(comparison.differences["benchmark"])
    baseline = next(arm for arm in part.arms if arm.name == comparison.baseline)
    baseline = replace(baseline, scores={name: of for name, of in baseline.scores.items() if name in compared})
    repeats = {scores.seeds for scores in baseline.scores.values()}
    if len(repeats) > 1 or len(names := repeats.pop()) < 2:
        return None
    others = [arm for arm in part.arms if arm.name != comparison.baseline]
    fewest = min(len(scores.seeds) for arm in others for scores in arm.scores.values())
    size = min(fewest, len(names) // 2)
    required = replace(policy, advisory={})
    over = comparison.differences["over"].iloc[0]
    outcomes = []
    for choice in _choices(names, size):
        remainder = [name for name in names if name not in choice]
        new, base = _repeats(baseline, choice, "new"), _repeats(baseline, remainder, "base")
        rows = differences_of(new, base, question, Metric.parse(comparison.metric), over)
        trial = replace(
            comparison, baseline="base", differences=rows.assign(at=comparison.axes[0]), students=tuple(rows["student"])
        )
        outcomes.append(gate.judge(trial, required).outcome)
    return NoiseFloor(len(outcomes), outcomes.count("broken"), outcomes.count("undecided"), size, len(names))


def _choices(names: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """All choices of `size` names, or MOST drawn ones."""
    if comb(len(names), size) <= MOST:
        return list(combinations(names, size))
    random = np.random.default_rng(0)
    return [tuple(random.choice(names, size, replace=False).tolist()) for _ in range(MOST)]


def _repeats(arm: Arm, seeds: Sequence[str], name: str) -> Arm:
    """Some repeats of an arm, whose names no longer pair with others."""
    return Arm(name, {benchmark: scores.of_seeds(seeds) for benchmark, scores in arm.scores.items()})
