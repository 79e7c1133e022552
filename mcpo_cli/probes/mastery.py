"""Next-step mastery (Sections 4.1 and 6.4, Figs. 2b and 7), with a control that the paper lacks.

Prompts are picked because all G rollouts were right. This selection overestimates their accuracy: rolled again under
the same policy (the control), they score less than 1. The effect of training is therefore the gap between the control
and the score under a later policy, not the gap between 1 and that score.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe, known
from mcpo_cli.probes.intervals import by_step, mean_over_steps
from mcpo_cli.records import GroupRow, RerollRow
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.stats import Floats


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """Accuracy of mastered prompts when they are rolled again, under the same policy and under later ones.

    Values:
    - `same_policy`: accuracy of the control; `selection_estimate`: its expected value (see `selection_estimate`), with
      an interval over groups.
    - `accuracy_lag_<l>`: accuracy l global steps later; `gap_lag_<l>`: control minus that, over prompts with both.
    - `prompts`: number of pairs of prompt and step; each prompt counts once per cohort.
    - `return_accuracy`: accuracy of mastered prompts when a later batch samples them again; `returns`: their number.

    Table `steps`: the same for each global step, and the shares P_G and P_(G-1) of groups with all and all but one
    rollout right.
    """
    pairs = _pairs(journal.rerolls())
    groups = journal.groups()
    values = known({**_lags(pairs), **_returns(groups), **_selection(spec, groups)})
    return Finding(values, {"steps": _steps(spec, pairs, groups)})


def selection_estimate(all_right: float, one_wrong: float, rollouts: int) -> float:
    """Expected accuracy under the same policy of groups that were picked because all rollouts were right.

    The estimate is P_G / (P_G + P_(G-1) / G), where P_G and P_(G-1) are the shares of groups with all and with all but
    one of their G rollouts right. It is exact for groups picked by G - 1 rollouts: for accuracy p of a prompt,
    P_G = E[p^G] and P_(G-1) = G E[p^(G-1) (1 - p)], so it equals E[p^G] / E[p^(G-1)]. Picking by G rollouts makes the
    true value, E[p^(G+1)] / E[p^G], at least as large, as moments are log-convex: 1 minus the estimate bounds the
    effect of selection from above. NaN if no group qualifies.
    """
    below = all_right + one_wrong / rollouts
    return all_right / below if below else float("nan")


def _pairs(rows: Iterable[RerollRow]) -> dict[int, list[tuple[RerollRow, RerollRow]]]:
    """For each lag, pairs of a mastered prompt's control and its roll that many global steps later."""
    mastered = [row for row in rows if row["source"] == "mastered" and row["n"]]
    controls = {(row["origin"], row["prompt"]): row for row in mastered if row["step"] == row["origin"]}
    pairs = defaultdict(list)
    for row in mastered:
        if control := controls.get((row["origin"], row["prompt"])):
            pairs[row["step"] - row["origin"]].append((control, row))
    return dict(sorted(pairs.items()))


def cohorts(rows: Iterable[RerollRow], lag: int) -> dict[int, Floats]:
    """Per global step, the accuracies of its mastered prompts: prompts x 2, under the same policy and `lag` later."""
    by_origin: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for control, later in _pairs(rows).get(lag, ()):
        by_origin[control["origin"]].append((_share(control), _share(later)))
    return {step: np.array(pairs) for step, pairs in sorted(by_origin.items())}


def _lags(pairs: Mapping[int, Sequence[tuple[RerollRow, RerollRow]]]) -> dict[str, float]:
    values = {}
    for lag, rolls in pairs.items():
        if lag == 0:
            values["prompts"] = float(len(rolls))
            values |= _interval("same_policy", rolls, lambda control, _: _share(control))
        else:
            values |= _interval(f"accuracy_lag_{lag}", rolls, lambda _, later: _share(later))
            values |= _interval(f"gap_lag_{lag}", rolls, lambda control, later: _share(control) - _share(later))
    return values


def _interval(name: str, pairs: Sequence[tuple[RerollRow, RerollRow]], value: Any) -> dict[str, float]:
    return mean_over_steps(name, [value(*pair) for pair in pairs], [control["origin"] for control, _ in pairs])


def _share(row: RerollRow) -> float:
    return row["c"] / row["n"]


def _returns(groups: Iterable[GroupRow]) -> dict[str, float]:
    """Accuracy of prompts in the next batch that samples them after one in which they were mastered."""
    last: dict[str, GroupRow] = {}
    returns: list[tuple[float, int]] = []
    for row in groups:
        before = last.get(row["prompt"])
        if before and before["step"] < row["step"] and before["p"] == 1:
            returns.append((row["p"], row["step"]))
        last[row["prompt"]] = row
    accuracy = mean_over_steps("return_accuracy", [p for p, _ in returns], [step for _, step in returns])
    return {"returns": float(len(returns)), **accuracy} if returns else {}


def _selection(spec: RunSpec, groups: Sequence[GroupRow]) -> dict[str, float]:
    """The estimate and its 95 % interval.

    The estimate grows with P_G / (P_G + P_(G-1)), a share of the groups with at most one rollout wrong. The bounds are
    those of this share (Wilson's, so that they stay within 0..1 and close in as groups are added), put through the same
    formula. They cover the sampling of groups, not the difference to picking by G rollouts.
    """
    G = spec.train.rollouts
    top = [right == G for row in groups if (right := round(row["p"] * G)) >= G - 1]
    if not top:
        return {}
    share = sum(top) / len(top)
    bounds = stats.share_interval(share, share * (1 - share) / len(top), len(top), math.inf)
    named = zip(("", "_low", "_high"), (share, *bounds), strict=True)
    return {f"selection_estimate{end}": selection_estimate(value, 1 - value, G) for end, value in named}


def _top(spec: RunSpec, groups: Sequence[GroupRow]) -> tuple[float, float]:
    """P_G and P_(G-1) among `groups`."""
    G = spec.train.rollouts
    right = [round(row["p"] * G) for row in groups]
    return right.count(G) / len(right), right.count(G - 1) / len(right)


def _steps(
    spec: RunSpec, pairs: Mapping[int, Sequence[tuple[RerollRow, RerollRow]]], groups: Iterable[GroupRow]
) -> list[dict[str, Any]]:
    table = []
    for step, here in by_step(groups).items():
        all_right, one_wrong = _top(spec, here)
        row: dict[str, Any] = {"step": step, "all_right": all_right, "one_wrong": one_wrong}
        row |= known({"selection_estimate": selection_estimate(all_right, one_wrong, spec.train.rollouts)})
        table.append(row | _cohort(step, pairs))
    return table


def _cohort(step: int, pairs: Mapping[int, Sequence[tuple[RerollRow, RerollRow]]]) -> dict[str, float]:
    """The values of the cohort picked at `step`."""
    values = dict[str, float]()
    for lag, rolls in pairs.items():
        here = [(_share(control), _share(later)) for control, later in rolls if control["origin"] == step]
        if here:
            same, then = (sum(shares) / len(here) for shares in zip(*here, strict=True))
            if lag == 0:
                values |= {"prompts": float(len(here)), "same_policy": same}
            else:
                values |= {f"accuracy_lag_{lag}": then, f"gap_lag_{lag}": same - then}
    return values


PROBE = Probe(
    name="mastery",
    question="How accurate are mastered prompts one step, and several steps, later?",
    needs=("groups", "rerolls"),
    shows=("same_policy", "accuracy_lag_1", "gap_lag_1", "selection_estimate", "prompts"),
    measure=measure,
    settings=("probe.every=1", "probe.prompts=128", "probe.lags=[0,1,5,10,20]"),
    suite="mastery",
)
