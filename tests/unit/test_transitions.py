"""The panel's trajectories, on journals whose transitions can be counted by hand."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from mcpo_cli import methods, tasks
from mcpo_cli.config.schema import Probe, RunSpec
from mcpo_cli.measures import mastery
from mcpo_cli.measures.base import CLASSES, Finding
from tests import rows

SPEC = RunSpec(methods.get("dapo"), tasks.get("arithmetic"), probe=Probe(panel_every=5))
N = 4


row = partial(rows.reroll, n=N)


def find(folder: Path, panel: Mapping[str, Sequence[int]], others: Sequence[rows.Row] = ()) -> Finding:
    """panel: by prompt the correct ones of N rollouts at steps 1, 6, 11, ..."""
    rolled = [row(1 + 5 * i, prompt, c) for prompt, counts in panel.items() for i, c in enumerate(counts)]
    return mastery.TRANSITIONS.measure(SPEC, rows.journal(SPEC, {"rerolls": [*rolled, *others]}, folder=folder))


PANEL = {
    "kept": [4, 4, 4, 4],
    "forgotten": [4, 4, 3, 2],
    "relearned": [4, 1, 4, 4],
    "learned": [0, 2, 3, 4],
    "hard": [1, 0, 2, 2],
}


def test_counts_and_shares_by_hand(tmp_path: Path) -> None:
    values = find(tmp_path, PANEL).values
    assert {name: values[name] for name in ("prompts", "ever_mastered", "forgotten", "relearned")} == {
        "prompts": 5,
        "ever_mastered": 4,
        "forgotten": 2,
        "relearned": 1,
    }
    # All right with a next roll: kept 3, forgotten 2 (one of them lost), relearned 2 (one lost).
    assert values["lost"] == pytest.approx(2 / 7)
    assert values["lost_low"] < 2 / 7 < values["lost_high"]
    assert "lost_by_chance" not in values
    # Spells without mastery: forgotten 5 steps and on, relearned repaired after 5. 5 steps and half of the other 15.
    assert values["repair_steps"] == pytest.approx(12.5)


def test_the_control_stands_beside_what_is_lost(tmp_path: Path) -> None:
    cohort = [row(1, "a", 4, origin=1), row(1, "b", 3, origin=1), row(2, "a", 0, origin=1), row(2, "c", 4, origin=2)]
    found = find(tmp_path, PANEL, cohort)
    assert found.values["lost_by_chance"] == pytest.approx(1 / 3)


def test_survival_by_hand(tmp_path: Path) -> None:
    """Spells: kept 15 steps and on, forgotten lost after 10, relearned after 5 (its second spell does not count)."""
    table = find(tmp_path, PANEL).tables["survival"]
    assert [(line["steps"], line["at_risk"], line["lost"]) for line in table] == [(5, 3, 1), (10, 2, 1), (15, 1, 0)]
    assert [line["survival"] for line in table] == pytest.approx([2 / 3, 1 / 3, 1 / 3])


def test_transitions_by_hand(tmp_path: Path) -> None:
    table = {line["before"]: line for line in find(tmp_path, PANEL).tables["transitions"]}
    assert [table[name]["pairs"] for name in CLASSES] == [2, 4, 2, 7]
    assert [table["mastered"][name] for name in CLASSES] == pytest.approx([0, 1 / 7, 1 / 7, 5 / 7])
    assert [table["all_wrong"][name] for name in CLASSES] == [0, 1, 0, 0]
    # relearned 1 -> 4, learned 2 -> 3, hard 1 -> 0 and 2 -> 2.
    assert [table["minority"][name] for name in CLASSES] == [0.25, 0.25, 0.25, 0.25]


def test_hard_prompts_are_followed_from_the_roll_after_the_one_that_picked_them(tmp_path: Path) -> None:
    found = find(tmp_path, PANEL)
    assert found.values["hard_prompts"] == 2
    # learned: 1 - 1/2; hard: 1/2 - 0.
    assert found.values["hard_gain"] == 0.5
    learning = found.tables["learning"]
    assert [line["step"] for line in learning] == [1, 6, 11, 16]
    assert [line["hard"] for line in learning] == pytest.approx([0.125, 0.25, 0.625, 0.75])
    assert [line["all_wrong"] for line in learning] == pytest.approx([0, 0.5, 0.75, 1])


def test_a_prompt_that_the_panel_holds_twice_has_two_trajectories(tmp_path: Path) -> None:
    twice = [row(step, "again", c) for step, pair in ((1, (4, 0)), (6, (4, 1))) for c in pair]
    found = find(tmp_path, {}, twice)
    assert found.values["prompts"] == 2
    assert found.values["lost"] == 0
    assert [(line["step"], line["p"]) for line in found.tables["trajectories"]] == [(1, 1), (6, 1), (1, 0), (6, 0.25)]


def test_what_could_not_be_graded_is_no_roll(tmp_path: Path) -> None:
    found = find(tmp_path, {"kept": [4, 4]}, [row(1, "other", 0, n=0), row(6, "other", 4)])
    assert found.values["lost"] == 0
    assert len(found.tables["trajectories"]) == 3


def test_without_a_panel_nothing_is_said(tmp_path: Path) -> None:
    assert find(tmp_path, {}, [row(1, "a", 4, origin=1)]) == Finding({})
