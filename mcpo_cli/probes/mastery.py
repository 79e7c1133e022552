"""Next-step mastery (Sections 4.1 and 6.4, Figs. 2b and 7), with the control that the paper lacks.

Prompts are picked because all G rollouts were right. That choice over-estimates them: rolled again under the very same
policy they score less than 1. What training does to them is the gap between that control and the score under a later
policy, not between 1 and that score.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.probes.base import Finding, Probe, known
from mcpo_cli.probes.intervals import by_step, mean_over_steps
from mcpo_cli.records import GroupRow, RerollRow
from mcpo_cli.runs.journal import Journal


def measure(spec: RunSpec, journal: Journal) -> Finding:
    """Accuracy of mastered prompts when they are rolled again, under the same policy and under later ones.

    Values: `same_policy` (the control), `accuracy_lag_<l>`, `gap_lag_<l>` (control minus that, of the prompts that
    have both; each prompt counts once a cohort; interval robust to what prompts of one step share), `prompts` (pairs
    of prompt and step), `selection_estimate` (what `same_policy` should be, see `selection_estimate`), and for
    prompts that come back in a later batch `return_accuracy` with `returns`.
    Table `steps`: the same a global step, and the shares P_G and P_(G-1) of groups with all and all but one right.
    """
    pairs = _pairs(journal.rerolls())
    groups = journal.groups()
    values = known({**_lags(pairs), **_returns(groups), **_selection(spec, groups)})
    return Finding(values, {"steps": _steps(spec, pairs, groups)})


def selection_estimate(all_right: float, one_wrong: float, rollouts: int) -> float:
    """Expected accuracy of a re-roll under the same policy of groups that were picked for being all right.

    P_G / (P_G + P_(G-1) / G), from the shares P_G and P_(G-1) of groups with all and with all but one of their G
    rollouts right. Exact for groups picked by G - 1 rollouts: for accuracy p of a prompt, P_G = E[p^G] and
    P_(G-1) = G E[p^(G-1) (1 - p)], so the estimate is E[p^G] / E[p^(G-1)]; picking by G makes it a little larger.
    NaN where no group qualifies.
    """
    below = all_right + one_wrong / rollouts
    return all_right / below if below else float("nan")


def _pairs(rows: Iterable[RerollRow]) -> dict[int, list[tuple[RerollRow, RerollRow]]]:
    """By lag: the control of each mastered prompt, and its roll under the policy that many steps later."""
    mastered = [row for row in rows if row["source"] == "mastered" and row["n"]]
    controls = {(row["origin"], row["prompt"]): row for row in mastered if row["step"] == row["origin"]}
    pairs = defaultdict(list)
    for row in mastered:
        if control := controls.get((row["origin"], row["prompt"])):
            pairs[row["step"] - row["origin"]].append((control, row))
    return dict(sorted(pairs.items()))


def _lags(pairs: Mapping[int, Sequence[tuple[RerollRow, RerollRow]]]) -> dict[str, float]:
    values = {}
    for lag, found in pairs.items():
        if lag == 0:
            values["prompts"] = float(len(found))
            values |= _interval("same_policy", found, lambda control, _: _share(control))
        else:
            values |= _interval(f"accuracy_lag_{lag}", found, lambda _, later: _share(later))
            values |= _interval(f"gap_lag_{lag}", found, lambda control, later: _share(control) - _share(later))
    return values


def _interval(name: str, pairs: Sequence[tuple[RerollRow, RerollRow]], value: Any) -> dict[str, float]:
    return mean_over_steps(name, [value(*pair) for pair in pairs], [control["origin"] for control, _ in pairs])


def _share(row: RerollRow) -> float:
    return row["c"] / row["n"]


def _returns(groups: Iterable[GroupRow]) -> dict[str, float]:
    """Of prompts that were mastered when a batch last held them: the accuracy when the next one does."""
    last: dict[str, GroupRow] = {}
    found: list[tuple[float, int]] = []
    for row in groups:
        before = last.get(row["prompt"])
        if before and before["step"] < row["step"] and before["p"] == 1:
            found.append((row["p"], row["step"]))
        last[row["prompt"]] = row
    accuracy = mean_over_steps("return_accuracy", [p for p, _ in found], [step for _, step in found])
    return {"returns": float(len(found)), **accuracy} if found else {}


def _selection(spec: RunSpec, groups: Sequence[GroupRow]) -> dict[str, float]:
    shares = _top(spec, groups)
    return {"selection_estimate": selection_estimate(*shares, spec.train.rollouts)} if groups else {}


def _top(spec: RunSpec, groups: Sequence[GroupRow]) -> tuple[float, float]:
    """P_G and P_(G-1) among `groups`."""
    G = spec.train.rollouts
    right = [round(row["p"] * G) for row in groups]
    return right.count(G) / len(right), right.count(G - 1) / len(right)


def _steps(
    spec: RunSpec, pairs: Mapping[int, Sequence[tuple[RerollRow, RerollRow]]], groups: Iterable[GroupRow]
) -> list[dict[str, Any]]:
    table = []
    for step, found in by_step(groups).items():
        all_right, one_wrong = _top(spec, found)
        row: dict[str, Any] = {"step": step, "all_right": all_right, "one_wrong": one_wrong}
        row |= known({"selection_estimate": selection_estimate(all_right, one_wrong, spec.train.rollouts)})
        table.append(row | _cohort(step, pairs))
    return table


def _cohort(step: int, pairs: Mapping[int, Sequence[tuple[RerollRow, RerollRow]]]) -> dict[str, float]:
    """Of the prompts that were picked at `step`."""
    values = dict[str, float]()
    for lag, found in pairs.items():
        here = [(_share(control), _share(later)) for control, later in found if control["origin"] == step]
        if here:
            same, then = (sum(shares) / len(here) for shares in zip(*here, strict=True))
            if lag == 0:
                values |= {"prompts": float(len(here)), "same_policy": same}
            else:
                values |= {f"accuracy_lag_{lag}": then, f"gap_lag_{lag}": same - then}
    return values


PROBE = Probe(
    name="mastery",
    question="What becomes of mastered prompts one step, and several steps, later?",
    needs=("groups", "rerolls"),
    shows=("same_policy", "accuracy_lag_1", "gap_lag_1", "selection_estimate", "prompts"),
    measure=measure,
    settings=("probe.every=1", "probe.prompts=128", "probe.lags=[0,1,5,10,20]"),
    suite="mastery",
)
