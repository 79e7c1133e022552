"""The mastery probe on a policy with known accuracy, and the panel's trajectories with transitions counted by hand.

A prompt with accuracy p is picked with probability p^G, so resampled picked prompts score E[p^(G+1)] / E[p^G].
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mcpo_cli import measures, methods, tasks
from mcpo_cli.backends.graded import Graded
from mcpo_cli.backends.resampling import ResampledPrompt, Resampler
from mcpo_cli.config.schema import Probe, RunSpec, Train
from mcpo_cli.data.base import Problem
from mcpo_cli.measures import mastery
from mcpo_cli.measures.base import CLASSES, Finding
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from tests import rows

# --- a policy with known accuracy on every prompt ---------------------------------------------------------------------


G, STEPS, PROMPTS = 16, 60, 128
SHARES = {0.0: 0.25, 0.3: 0.2, 0.7: 0.15, 0.9: 0.15, 0.97: 0.15, 1.0: 0.1}
"""Share of the prompts by accuracy."""
LOSS = {p: 0.06 * p if 0 < p < 1 else 0.0 for p in SHARES}
"""Accuracy that one update takes from a prompt that is resampled after it."""


def moment(power: int) -> float:
    """E[p^power]."""
    return sum(share * p**power for p, share in SHARES.items())


SAME_POLICY = moment(G + 1) / moment(G)
GAP = sum(share * p**G * LOSS[p] for p, share in SHARES.items()) / moment(G)


class KnownPolicy:
    """Samples verdicts at random: the text of a problem begins with its accuracy."""

    def __init__(self, spec: RunSpec, run_dir: Path, seed: int = 0) -> None:
        self.spec, self.rng = spec, np.random.default_rng(seed)
        self.attempt = Attempt(run_dir, spec, 0)
        self.rerolls = Resampler(spec, Journal(run_dir), 0, [Problem(f"{p} panel {p}", "") for p in SHARES])

    def step(self, step: int) -> dict[str, float]:
        p_P = self.rng.choice(list(SHARES), PROMPTS, p=list(SHARES.values()))
        right_PG = self.rng.random((PROMPTS, G)) < p_P[:, None]
        problems = [Problem(f"{p} {step} {i}", "gold") for i, p in enumerate(p_P)]
        zero_PG = torch.zeros(PROMPTS, G)
        graded = Graded(problems, torch.from_numpy(right_PG), zero_PG, zero_PG + 1, zero_PG, zero_PG[:, 0])
        rolls = self.rerolls.due(step, graded)
        rows, metrics = self.rerolls.record(step, rolls, [G] * len(rolls), [self.roll(step, roll) for roll in rolls])
        self.attempt.journal.rows("rerolls", step, rows)
        groups = [
            {"step": step, "prompt": problem.text, "p": float(p), "mean_length": 1.0, "kept": True}
            for problem, p in zip(problems, right_PG.mean(-1), strict=True)
        ]
        self.attempt.journal.rows("groups", step, groups)
        return metrics

    def roll(self, step: int, roll: ResampledPrompt) -> int:
        p = float(roll.problem.text.split()[0])
        lost = LOSS[p] if roll.source == "mastered" and roll.origin < step else 0.0
        return int(self.rng.binomial(G, p - lost))


def run_spec(**probe: Any) -> RunSpec:
    settings = Probe(**{"prompts": PROMPTS, "panel_every": 0, **probe})
    return RunSpec(
        methods.get("dapo"), tasks.get("arithmetic"), train=Train(rollouts=G, prompts=PROMPTS), probe=settings
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[measures.Finding, list[dict[str, float]]]:
    folder = tmp_path_factory.mktemp("known") / "run"
    policy = KnownPolicy(run_spec(), folder)
    metrics = [policy.step(step) for step in range(1, STEPS + 1)]
    return mastery.MASTERY.measure(policy.spec, Journal(folder)), metrics


def test_the_control_meets_its_closed_form_and_the_naive_estimate_is_off_by_the_selection(found: Any) -> None:
    values = found[0].values
    assert values["same_policy_low"] < SAME_POLICY < values["same_policy_high"]
    assert values["accuracy_lag_1_low"] < SAME_POLICY - GAP < values["accuracy_lag_1_high"]
    # Reading 1 - next-step accuracy as forgetting adds the selection, 1 - E[p^(G+1)] / E[p^G], to the true forgetting.
    naive = 1 - values["accuracy_lag_1"]
    half_width = (values["accuracy_lag_1_high"] - values["accuracy_lag_1_low"]) / 2
    assert abs(naive - GAP - (1 - SAME_POLICY)) < half_width
    assert naive - GAP > 2 * half_width


def test_the_control_takes_the_bias_out_of_the_gap(found: Any) -> None:
    values = found[0].values
    assert values["gap_lag_1_low"] < GAP < values["gap_lag_1_high"]
    assert values["gap_lag_1_high"] - values["gap_lag_1_low"] < GAP


def test_the_selection_estimate_is_the_closed_form_of_a_choice_by_one_rollout_less(found: Any) -> None:
    one_wrong = G * (moment(G - 1) - moment(G))
    assert mastery.selection_estimate(moment(G), one_wrong, G) == pytest.approx(moment(G) / moment(G - 1))
    assert found[0].values["selection_estimate"] == pytest.approx(moment(G) / moment(G - 1), abs=0.01)
    assert mastery.selection_estimate(0.1, 0.2, 16) == pytest.approx(0.1 / (0.1 + 0.0125))
    assert np.isnan(mastery.selection_estimate(0.0, 0.0, 16))


def test_curves_of_the_run_and_of_the_probe_are_the_same(found: Any) -> None:
    finding, metrics = found
    for row, before, after in zip(finding.tables["steps"], metrics, metrics[1:], strict=False):
        assert row["same_policy"] == pytest.approx(before["probe/accuracy_lag_0"])
        assert row["accuracy_lag_1"] == pytest.approx(after["probe/accuracy_lag_1"])
        assert row["gap_lag_1"] == pytest.approx(after["probe/gap_lag_1"])


def test_a_cohort_is_rolled_at_its_lags_and_another_attempt_goes_on_with_it(tmp_path: Path) -> None:
    spec = run_spec(every=2, prompts=3, lags=(0, 1, 3), panel_every=4)
    policy = KnownPolicy(spec, tmp_path / "run")
    for step in range(1, 6):
        policy.step(step)
    rows = Journal(tmp_path / "run").rerolls()
    rolled = {(row["origin"], row["step"]) for row in rows if row["source"] == "mastered"}
    assert rolled == {(2, 2), (2, 3), (2, 5), (4, 4), (4, 5)}
    assert {row["step"] for row in rows if row["source"] == "panel"} == {1, 5}
    assert sum(row["step"] == row["origin"] == 4 for row in rows) == 3
    # Step 5 was lost: its measurements are due again, for the prompts that were picked at steps 2 and 4.
    panel = [Problem("1.0 panel", "")]
    again = Resampler(spec, Journal(tmp_path / "run"), 4, panel)
    none = Graded([], torch.zeros(0, G, dtype=torch.bool), *[torch.zeros(0, G)] * 3, torch.zeros(0))
    due = again.due(5, none)
    picked = {row["prompt"] for row in rows if row["step"] == row["origin"]}
    assert {roll.problem.text for roll in due if roll.source == "mastered"} == picked
    assert [roll.origin for roll in due] == [4, 4, 4, 2, 2, 2, 0]
    # If step 4 was lost, too: no checkpoint covers its cohort, which is picked again.
    assert {roll.origin for roll in Resampler(spec, Journal(tmp_path / "run"), 3, panel).due(5, none)} == {2, 0}


# --- the panel's trajectories -----------------------------------------------------------------------------------------


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
