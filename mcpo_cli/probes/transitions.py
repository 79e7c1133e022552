"""Trajectories of the panel's prompts: which are learned, kept, forgotten and relearned.

A prompt whose accuracy is a little below 1 can "lose" mastery by chance alone. The losses are therefore compared with
a control: how often a mastered prompt is not all right when it is rolled again under the same policy.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe, known
from mcpo_cli.probes.classes import CLASSES, class_of
from mcpo_cli.probes.intervals import mean_over_steps
from mcpo_cli.records import RerollRow
from mcpo_cli.runs.journal import Journal
from mcpo_cli.statistics import curves

HARD = 0.25
"""Largest accuracy of a hard prompt at the panel's first roll."""


@dataclass(frozen=True)
class Trajectory:
    """All rolls of one place of the panel."""

    prompt: str
    steps: list[int]
    """The global steps of the rolls."""
    p: list[float]
    """The accuracy at each of these steps."""


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """Changes from one roll of the panel to the next, `probe.panel_every` global steps later.

    Values:
    - `prompts`: size of the panel; `ever_mastered`: prompts that were all right at some roll.
    - `forgotten`: number of changes from all right to not; `relearned`: number of returns to all right.
    - `lost`: share of all-right rolls whose next roll is not all right; `lost_by_chance`: the same for a second roll
      under the same policy (cohorts of mastered prompts).
    - `hard_prompts`: prompts with accuracy at most HARD at the first roll; `hard_gain`: their accuracy at the last roll
      minus that at the second. The first roll selected them, so it is biased low.

    Tables:
    - `trajectories`: one row per roll. `transitions`: by class, the shares of the classes at the next roll.
    - `survival`: Kaplan-Meier curve from a prompt's first all-right roll to its next roll that is not; the end of the
      run censors. `chance_at_least`: survival under chance alone if all prompts are equally stable, else a lower bound.
    - `learning`: mean accuracy at each step of all prompts, of hard ones, and of those with p = 0 at the first roll.
    """
    rolls = journal.rerolls()
    panel = _trajectories(rolls)
    if not panel:
        return Finding({})
    chance = _lost_by_chance(rolls)
    values = {**_counts(panel), **_lost(panel), **chance, **_hard(panel)}
    tables = {
        "trajectories": [
            {"prompt": one.prompt, "step": step, "p": p}
            for one in panel
            for step, p in zip(one.steps, one.p, strict=True)
        ],
        "transitions": _matrix(panel),
        "survival": _survival(panel, spec.probe.panel_every, chance.get("lost_by_chance")),
        "learning": _learning(panel),
    }
    return Finding(values, tables)


def _trajectories(rolls: Iterable[RerollRow]) -> list[Trajectory]:
    """One trajectory per place of the panel, in its order; copies of a prompt have separate ones."""
    trajectories: dict[tuple[str, int], Trajectory] = {}
    copies: Counter[tuple[int, str]] = Counter()
    for row in rolls:
        if row["source"] == "panel" and row["n"]:
            place = row["step"], row["prompt"]
            one = trajectories.setdefault((row["prompt"], copies[place]), Trajectory(row["prompt"], [], []))
            copies[place] += 1
            one.steps.append(row["step"])
            one.p.append(row["c"] / row["n"])
    return list(trajectories.values())


def _counts(panel: Sequence[Trajectory]) -> dict[str, float]:
    forgotten = relearned = 0
    for one in panel:
        for place, (before, after) in enumerate(pairwise(one.p)):
            forgotten += before == 1 and after < 1
            relearned += before < 1 and after == 1 and 1 in one.p[:place]
    ever = sum(1 in one.p for one in panel)
    counts = {"prompts": len(panel), "ever_mastered": ever, "forgotten": forgotten, "relearned": relearned}
    return {name: float(count) for name, count in counts.items()}


def _lost(panel: Sequence[Trajectory]) -> dict[str, float]:
    """The value `lost`, with its interval over prompts."""
    pairs = [(i, after) for i, one in enumerate(panel) for before, after in pairwise(one.p) if before == 1]
    return mean_over_steps("lost", [float(after < 1) for _, after in pairs], [i for i, _ in pairs])


def _lost_by_chance(rolls: Iterable[RerollRow]) -> dict[str, float]:
    """The value `lost_by_chance`, with its interval over steps."""
    controls = [row for row in rolls if row["source"] == "mastered" and row["origin"] == row["step"] and row["n"]]
    return mean_over_steps(
        "lost_by_chance", [float(row["c"] < row["n"]) for row in controls], [row["step"] for row in controls]
    )


def _hard(panel: Sequence[Trajectory]) -> dict[str, float]:
    hard = [one for one in panel if one.p[0] <= HARD]
    gains = [one.p[-1] - one.p[1] for one in hard if len(one.p) > 2]
    return {"hard_prompts": float(len(hard)), **mean_over_steps("hard_gain", gains, list(range(len(gains))))}


def _matrix(panel: Sequence[Trajectory]) -> list[dict[str, Any]]:
    counts = Counter((class_of(before), class_of(after)) for one in panel for before, after in pairwise(one.p))
    table = []
    for before in CLASSES:
        total = sum(counts[before, after] for after in CLASSES)
        shares = {after: counts[before, after] / total for after in CLASSES} if total else {}
        table.append({"before": before, "pairs": total, **shares})
    return table


def _survival(panel: Sequence[Trajectory], every: int, chance: float | None) -> list[dict[str, Any]]:
    spells = [spell for one in panel if (spell := _spell(one))]
    if not spells:
        return []
    curve = curves.survival([time for time, _ in spells], [lost for _, lost in spells])
    table = []
    columns = (column.tolist() for column in (curve.time_T, curve.share_T, curve.low_T, curve.high_T))
    for time, share, low, high in zip(*columns, strict=True):
        line = {
            "steps": time,
            "at_risk": sum(length >= time for length, _ in spells),
            "lost": spells.count((time, True)),
        }
        line |= known({"survival": share, "survival_low": low, "survival_high": high})
        if chance is not None:
            line["chance_at_least"] = (1 - chance) ** (time / every)
        table.append(line)
    return table


def _spell(one: Trajectory) -> tuple[int, bool] | None:
    """Global steps from the first all-right roll to the next that is not (True), or to the last roll (False)."""
    if 1 not in one.p[:-1]:
        return None
    first = one.p.index(1)
    lost = next((i for i in range(first + 1, len(one.p)) if one.p[i] < 1), None)
    return one.steps[-1 if lost is None else lost] - one.steps[first], lost is not None


def _learning(panel: Sequence[Trajectory]) -> list[dict[str, Any]]:
    curves_of = {
        "accuracy": list(panel),
        "hard": [one for one in panel if one.p[0] <= HARD],
        "all_wrong": [one for one in panel if one.p[0] == 0],
    }
    table = []
    for step in sorted({step for one in panel for step in one.steps}):
        line: dict[str, Any] = {"step": step}
        for name, members in curves_of.items():
            here = [one.p[one.steps.index(step)] for one in members if step in one.steps]
            line |= mean_over_steps(name, here, list(range(len(here))))
        table.append(line)
    return table


PROBE = Probe(
    name="transitions",
    question="How long do prompts stay mastered, which are relearned, and how are hard prompts learned?",
    needs=("rerolls",),
    shows=("lost", "lost_by_chance", "forgotten", "relearned", "hard_gain", "prompts"),
    measure=measure,
    settings=("probe.panel=256", "probe.panel_every=1"),
)
