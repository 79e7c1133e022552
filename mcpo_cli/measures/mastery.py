"""Resampled prompts: next-step mastery (Sections 4.1 and 6.4, Figs. 2b and 7), and trajectories of the panel.

Mastered prompts are picked because all G rollouts were correct. This selection overestimates their accuracy: resampled
under the same policy (a control that the paper lacks), they score less than 1. The effect of training is therefore the
gap between the control and the score under a later policy, not the gap between 1 and this score. In the same way, a
prompt of the panel can "lose" mastery by chance alone: losses are compared with the control.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.measures.base import (
    CLASSES,
    Finding,
    Measure,
    by_step,
    class_of,
    mean_over_steps,
    means,
    numbered,
    without_nan,
)
from mcpo_cli.records import GroupRow, RerollRow
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import curves, stats
from mcpo_cli.statistics.stats import Floats


def _mastery(spec: RunSpec, journal: Journal) -> Finding:
    """Accuracy of mastered prompts when they are resampled, under the same policy and under later ones.

    Table `steps`: the values of each global step, and the shares P_G and P_(G-1) of groups with all and all but one
    rollout right.
    """
    rolls, groups = journal.rerolls(), journal.groups()
    pairs, cohort_TC2 = _pairs(rolls), [*cohorts(rolls, 1).values()]
    values = {**_lags(pairs), **_selection(spec, groups)}
    # In these each step counts once.
    values |= {"gap": gap(cohort_TC2), "deepest_gap": deepest(cohort_TC2), "swings": swings(cohort_TC2)}
    if values.get("accuracy_lag_1", 1) != 1:
        values["drift_share"] = values["gap_lag_1"] / (1 - values["accuracy_lag_1"])
    return Finding(without_nan(values), {"steps": _steps(spec, pairs, groups)})


def gap(cohort_TC2: Sequence[Floats]) -> float:
    """Same-policy minus next-step accuracy, mean over cohorts; see `cohorts`."""
    return fmean([float(np.subtract(*cohort_C2.T).mean()) for cohort_C2 in cohort_TC2]) if cohort_TC2 else math.nan


def deepest(cohort_TC2: Sequence[Floats]) -> float:
    """`curves.deepest` of the gap."""
    return curves.deepest([np.subtract(*cohort_C2.T) for cohort_C2 in cohort_TC2])


def swings(cohort_TC2: Sequence[Floats]) -> float:
    """`curves.swings` of next-step accuracy."""
    return curves.swings([cohort_C2[:, 1] for cohort_C2 in cohort_TC2])


def selection_estimate(all_right: float, one_wrong: float, rollouts: int) -> float:
    """Expected accuracy under the same policy of groups that were picked because all rollouts were correct.

    The estimate is P_G / (P_G + P_(G-1) / G), where P_G and P_(G-1) are the shares of groups with all and with all but
    one of their G rollouts correct. It is exact for groups picked by G - 1 rollouts: for accuracy p of a prompt,
    P_G = E[p^G] and P_(G-1) = G E[p^(G-1) (1 - p)], so it equals E[p^G] / E[p^(G-1)]. Picking by G rollouts makes the
    true value, E[p^(G+1)] / E[p^G], at least as large, as moments are log-convex: 1 minus the estimate bounds the
    effect of selection from above. NaN if no group qualifies.
    """
    below = all_right + one_wrong / rollouts
    return all_right / below if below else float("nan")


def _pairs(rows: Iterable[RerollRow]) -> dict[int, list[tuple[RerollRow, RerollRow]]]:
    """For each lag, pairs of a mastered prompt's control and its rollouts that many global steps later."""
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
    values: dict[str, float] = {}
    for lag, rolls in pairs.items():
        names = {f"accuracy_lag_{lag}": _later, f"gap_lag_{lag}": lambda pair: _same(pair) - _later(pair)}
        values |= {"prompts": float(len(rolls))} if lag == 0 else {}
        values |= means(rolls, lambda pair: pair[0]["origin"], **(names if lag else {"same_policy": _same}))
    return values


def _same(pair: tuple[RerollRow, RerollRow]) -> float:
    return _share(pair[0])


def _later(pair: tuple[RerollRow, RerollRow]) -> float:
    return _share(pair[1])


def _share(row: RerollRow) -> float:
    return row["c"] / row["n"]


def _selection(spec: RunSpec, groups: Sequence[GroupRow]) -> dict[str, float]:
    """The estimate and its 95 % interval.

    The estimate grows with P_G / (P_G + P_(G-1)), a share of the groups with at most one rollout wrong. The bounds are
    the share's bounds (Wilson's, so that they stay within 0..1 and close in as groups are added), put through the same
    formula. They cover the sampling of groups, not the difference to picking by G rollouts.
    """
    G = spec.train.rollouts
    top = [right == G for row in _whole(spec, groups) if (right := round(row["p"] * G)) >= G - 1]
    if not top:
        return {}
    share = sum(top) / len(top)
    bounds = stats.share_interval(share, share * (1 - share) / len(top), len(top), math.inf)
    pairs = zip(("", "_low", "_high"), (share, *bounds), strict=True)
    return {f"selection_estimate{end}": selection_estimate(value, 1 - value, G) for end, value in pairs}


def _whole(spec: RunSpec, groups: Iterable[GroupRow]) -> list[GroupRow]:
    """The groups with G graded rollouts; none where a sampler gives prompts different numbers of them."""
    G = spec.train.rollouts
    return [] if spec.sampler.uneven_groups else [row for row in groups if row.get("rollouts", G) == G]


def _steps(
    spec: RunSpec, pairs: Mapping[int, Sequence[tuple[RerollRow, RerollRow]]], groups: Iterable[GroupRow]
) -> list[dict[str, Any]]:
    G, table = spec.train.rollouts, []
    for step, of_step in by_step(groups).items():
        row: dict[str, Any] = {"step": step}
        if right := [round(row["p"] * G) for row in _whole(spec, of_step)]:
            all_right, one_wrong = (right.count(k) / len(right) for k in (G, G - 1))
            row |= {"all_right": all_right, "one_wrong": one_wrong}
            row |= without_nan({"selection_estimate": selection_estimate(all_right, one_wrong, G)})
        # One cohort is one cluster, so these means have no intervals.
        cohort = {lag: [pair for pair in rolls if pair[0]["origin"] == step] for lag, rolls in pairs.items()}
        table.append(row | _lags({lag: rolls for lag, rolls in cohort.items() if rolls}))
    return table


MASTERY = Measure(
    name="mastery",
    question="How accurate are mastered prompts one step, and several steps, later?",
    needs=("groups", "rerolls"),
    values={
        "same_policy": "accuracy of mastered prompts resampled under the same policy, the control",
        "accuracy_lag_*": "accuracy of mastered prompts resampled under the policy of so many steps later",
        "gap_lag_*": "same-policy accuracy of mastered prompts minus that so many steps later, over prompts with both",
        "gap": "same-policy minus next-step accuracy of mastered prompts, mean over their steps; each step counts once",
        "deepest_gap": "next-step gap in the fifth of training where it is largest; half of the prompts select that "
        "fifth, the other half measure it, so that small cohorts do not look deeper",
        "swings": "mean squared change of next-step accuracy from step to step, minus the sampling variance of the "
        "cohorts",
        "drift_share": "next-step gap as a share of 1 minus next-step accuracy, each prompt counted once per step",
        "selection_estimate": "expected same-policy accuracy; left out where groups differ in their number of rollouts",
        "prompts": "number of pairs of mastered prompt and step; each prompt counts once per cohort",
    },
    shows=("same_policy", "accuracy_lag_1", "gap_lag_1", "selection_estimate", "prompts"),
    measure=_mastery,
    settings=("probe.every=1", "probe.prompts=128", "probe.lags=[0,1,5,10,20]"),
    suite="mastery",
)


HARD = 0.25
"""Largest accuracy of a hard prompt at the panel's first sampling."""
REPAIR = 4
"""Samplings of the panel after which a prompt that is still not all correct counts no further in `repair_steps`."""


@dataclass(frozen=True)
class Trajectory:
    """All samplings of one place of the panel."""

    prompt: str
    steps: list[int]
    """The global steps of its samplings."""
    p: list[float]
    """The accuracy at each of these steps."""


def _transitions(spec: RunSpec, journal: Journal) -> Finding:
    """Changes from one sampling of the panel to the next, `probe.panel_every` global steps later.

    Tables:
    - `trajectories`: one row per sampling. `transitions`: by class, the shares of the classes at the next sampling.
    - `survival`: Kaplan-Meier curve from a prompt's first all-correct sampling to its next sampling that is not; the
      end of the run censors.
    - `learning`: mean accuracy at each step of all prompts, of hard prompts, and of prompts with p = 0 at first.
    """
    rolls = journal.rerolls()
    panel = _trajectories(rolls)
    if not panel:
        return Finding({})
    controls = [row for row in rolls if row["source"] == "mastered" and row["origin"] == row["step"] and row["n"]]
    # By places of the panel, so that the interval is over prompts.
    losses = [(i, float(after < 1)) for i, place in enumerate(panel) for p, after in pairwise(place.p) if p == 1]
    values = {**_counts(panel), **mean_over_steps("lost", [value for _, value in losses], [i for i, _ in losses])}
    values |= means(controls, lost_by_chance=lambda row: row["c"] < row["n"])
    values |= {**_repair(panel, spec.probe.panel_every), **_hard(panel)}
    tables = {
        "trajectories": [
            {"prompt": place.prompt, "step": step, "p": p}
            for place in panel
            for step, p in zip(place.steps, place.p, strict=True)
        ],
        "transitions": _matrix(panel),
        "survival": _survival(panel),
        "learning": _learning(panel),
    }
    return Finding(values, tables)


def _trajectories(rolls: Iterable[RerollRow]) -> list[Trajectory]:
    """One trajectory per place of the panel, in its order; copies of a prompt have separate ones."""
    trajectories: dict[tuple[str, int], Trajectory] = {}
    rows = [row for row in rolls if row["source"] == "panel" and row["n"]]
    for row, (_, copy) in zip(rows, numbered((row["step"], row["prompt"]) for row in rows), strict=True):
        trajectory = trajectories.setdefault((row["prompt"], copy), Trajectory(row["prompt"], [], []))
        trajectory.steps.append(row["step"])
        trajectory.p.append(row["c"] / row["n"])
    return list(trajectories.values())


def _counts(panel: Sequence[Trajectory]) -> dict[str, float]:
    forgotten = relearned = 0
    for trajectory in panel:
        for index, (before, after) in enumerate(pairwise(trajectory.p)):
            forgotten += before == 1 and after < 1
            relearned += before < 1 and after == 1 and 1 in trajectory.p[:index]
    ever = sum(1 in trajectory.p for trajectory in panel)
    counts = {"prompts": len(panel), "ever_mastered": ever, "forgotten": forgotten, "relearned": relearned}
    return {name: float(count) for name, count in counts.items()}


def _repair(panel: Sequence[Trajectory], interval: int) -> dict[str, float]:
    """The value `repair_steps`; empty if no prompt was forgotten."""
    spells = [spell for trajectory in panel for spell in _repairs(trajectory)]
    if not spells:
        return {}
    curve = curves.survival([time for time, _ in spells], [repaired for _, repaired in spells])
    return {"repair_steps": curve.restricted_mean(REPAIR * interval)}


def _repairs(trajectory: Trajectory) -> Iterator[tuple[int, bool]]:
    """Global steps from each loss of mastery to the next all-correct sampling (True), or to the last one (False)."""
    for i in range(1, len(trajectory.p)):
        if trajectory.p[i - 1] == 1 and trajectory.p[i] < 1:
            repair = next((j for j in range(i + 1, len(trajectory.p)) if trajectory.p[j] == 1), None)
            yield trajectory.steps[-1 if repair is None else repair] - trajectory.steps[i], repair is not None


def _hard(panel: Sequence[Trajectory]) -> dict[str, float]:
    hard = [trajectory for trajectory in panel if trajectory.p[0] <= HARD]
    gains = [trajectory.p[-1] - trajectory.p[1] for trajectory in hard if len(trajectory.p) > 2]
    return {"hard_prompts": float(len(hard)), **mean_over_steps("hard_gain", gains, list(range(len(gains))))}


def _matrix(panel: Sequence[Trajectory]) -> list[dict[str, Any]]:
    counts = Counter((class_of(p), class_of(later)) for place in panel for p, later in pairwise(place.p))
    table = []
    for before in CLASSES:
        total = sum(counts[before, after] for after in CLASSES)
        shares = {after: counts[before, after] / total for after in CLASSES} if total else {}
        table.append({"before": before, "pairs": total, **shares})
    return table


def _survival(panel: Sequence[Trajectory]) -> list[dict[str, Any]]:
    spells = [spell for place in panel if (spell := _spell(place))]
    if not spells:
        return []
    curve = curves.survival([time for time, _ in spells], [lost for _, lost in spells])
    at_risk = [sum(length >= time for length, _ in spells) for time in curve.time_T]
    losses = [spells.count((time, True)) for time in curve.time_T]
    columns = {"steps": curve.time_T.tolist(), "at_risk": at_risk, "lost": losses, "survival": curve.share_T.tolist()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _spell(trajectory: Trajectory) -> tuple[int, bool] | None:
    """Global steps from the first all-correct sampling to the next one that is not (True), or to the last (False)."""
    if 1 not in trajectory.p[:-1]:
        return None
    first = trajectory.p.index(1)
    loss = next((i for i in range(first + 1, len(trajectory.p)) if trajectory.p[i] < 1), None)
    return trajectory.steps[-1 if loss is None else loss] - trajectory.steps[first], loss is not None


def _learning(panel: Sequence[Trajectory]) -> list[dict[str, Any]]:
    curves_of = {
        "accuracy": list(panel),
        "hard": [trajectory for trajectory in panel if trajectory.p[0] <= HARD],
        "all_wrong": [trajectory for trajectory in panel if trajectory.p[0] == 0],
    }
    table = []
    for step in sorted({step for trajectory in panel for step in trajectory.steps}):
        line: dict[str, Any] = {"step": step}
        for name, members in curves_of.items():
            sampled = [member.p[member.steps.index(step)] for member in members if step in member.steps]
            line |= mean_over_steps(name, sampled, list(range(len(sampled))))
        table.append(line)
    return table


TRANSITIONS = Measure(
    name="transitions",
    question="How long do prompts stay mastered, which are relearned, and how are hard prompts learned?",
    needs=("rerolls",),
    values={
        "prompts": "size of the panel",
        "ever_mastered": "prompts of the panel that were all correct at some time",
        "forgotten": "changes of the panel's prompts from all rollouts right to not, from one sampling to the next",
        "relearned": "returns of the panel's prompts to all rollouts right",
        "repair_steps": "mean number of global steps from a sampling that is no longer all correct to the next that "
        f"is, of {REPAIR} samplings at most (restricted mean of the Kaplan-Meier curve; the end of the run censors)",
        "lost": "share of all-correct samplings whose next one is not all correct",
        "lost_by_chance": "the same for a second one under the same policy (cohorts of mastered prompts)",
        "hard_prompts": f"prompts with accuracy of at most {HARD} at the first sampling",
        "hard_gain": "their accuracy at the last sampling minus that at the second; the first, which selected them, is "
        "biased low",
    },
    shows=("lost", "lost_by_chance", "forgotten", "relearned", "hard_gain", "prompts"),
    measure=_transitions,
    settings=("probe.panel=256", "probe.panel_every=1"),
)

MEASURES = (MASTERY, TRANSITIONS)
