"""The registry of measures: what they declare is what they read and give; numbers of one run by hand."""

from pathlib import Path
from typing import Any

import pytest

from mcpo_cli import measures, methods, tasks
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.measures.frames import Runs
from mcpo_cli.methods.mcpo import ACTIVE, FELT
from mcpo_cli.report import numbers
from mcpo_cli.runs.journal import Journal, Kind
from tests import rows
from tests.errors import refused

ROLLS = [(1, "10", 8, 1), (1, "11", 7, 1), (2, "10", 7, 1), (2, "11", 5, 1), (2, "20", 8, 2), (3, "20", 7, 2)]
"""Mastered prompts that are resampled at once and one step later: step, prompt, correct of 8, origin."""
GRADIENTS = [(0.5, 0.5), (0.625, 0.48), (0.75, 0.43), (0.875, 0.33), (0.875, 0.31)]
"""p and measured weight."""
P = {1: [1, 1, 0, 0.5], 2: [1, 0.625, 0.75, 0], 3: [0.875, 1, 1, 0.25]}
ENTROPY = {1: 0.2, 2: 0.4, 3: 0.7}
METRICS = [
    {
        "mastery/mastered": P[step].count(1) / 4,
        "mastery/all_wrong": P[step].count(0) / 4,
        "train/clip_high": 0.1 * step,
        "train/clip_low": 0.1,
        "train/length": float(step),
        "sanity/truncated": 0.0,
    }
    for step in P
]


def records(evaluated: list[int]) -> dict[str, list[rows.Row]]:
    """Rows of every kind: three steps with four prompts each."""
    sums = {FELT: [1.0, 2.0], ACTIVE: [3.0, 9.0], "train/grad_norm": [0.5, 1.0]}
    return {
        "groups": [
            rows.group(step, value, f"{step}{i}", entropy=ENTROPY[step])
            for step, values in P.items()
            for i, value in enumerate(values)
        ],
        "rerolls": [rows.reroll(*roll) for roll in ROLLS],
        "gradients": [
            {"step": 1, "prompt": f"{i}", "p": p, "weight": w, "norm": 1.0, "with_update": 1.0, "with_mastered": 0.0}
            for i, (p, w) in enumerate(GRADIENTS)
        ],
        "mini_batches": [{"step": step, "mini_batch": 1, "sums": sums} for step in P],
        "eval": [
            row
            for step in evaluated
            for row in rows.evaluation(step, {"k2-3": [8], "k5-6": [2], "k7-8": [1 if step == 3 else 5]})
        ],
    }


class Watched(Journal):
    """A journal that remembers the kinds of rows that were read."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.kinds: set[str] = set()

    def steps(self) -> list[Any]:
        self.kinds.add("steps")
        return super().steps()

    def files(self, kind: Kind) -> dict[int, Path]:
        self.kinds.add(kind)
        return super().files(kind)


@pytest.mark.parametrize("name", list(measures.registry()))
def test_a_measure_reads_the_rows_that_it_declares_and_gives_the_values(name: str, tmp_path: Path) -> None:
    """A run with rows of every kind, forked after step 1 from one with the same rows."""
    measure = measures.get(name)
    spec = RunSpec(
        methods.get("mcpo"), tasks.get("arithmetic"), train=Train(steps=3, rollouts=8), fork="left@1" * (name == "fork")
    )
    written = records([0, 3])
    rows.journal(spec, written, METRICS, tmp_path / "left")
    rows.journal(spec, written, METRICS, tmp_path / "run")
    journal = Watched(tmp_path / "run")
    found = measure.measure(spec, journal)
    assert measure.needs, "without needs no run is trained for it"
    assert set(measure.needs) <= journal.kinds, "it declares rows that it does not read"
    assert journal.kinds <= {*measure.needs, *measure.also}, "it reads rows that it does not declare"
    assert all(measure.meaning(shown) for shown in measure.shows)
    values = {value for value in found.values if not value.endswith(("_low", "_high"))}
    assert [value for value in values if not measure.meaning(value)] == []


def test_a_run_without_the_rows_that_a_measure_reads_has_no_number(mcpo_home: Path) -> None:
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0", "eval.problems=1"], "")
    run = plan.runs[0]
    rows.journal(run.spec, {**records(eval_steps(run.spec)), "gradients": []}, [{}] * run.spec.train.steps)
    runs = Runs(Plan("table1", "", (run,)))
    for name in ("weights.effective_share", "transitions.lost", "training.train/clip_high", "paper-claims.promoted"):
        assert numbers.of_run(runs, run, name) == {}


def test_numbers_by_hand(mcpo_home: Path) -> None:
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0", "train.rollouts=8", "eval.problems=1"], "")
    run = plan.runs[0]
    rows.journal(run.spec, records(eval_steps(run.spec)), METRICS)
    runs = Runs(Plan("table1", "", (run,)))
    middle, hard = 1 - (6 / 8) ** 8, 1 - (7 / 8) ** 8
    expected = {
        "scores.pass@1": 11 / 24,
        "scores.gained": 11 / 24 - 15 / 24,
        "scores.best@8": (1 + middle + hard) / 3,
        "training.mastery/mastered in the end": 2 / 4,
        "training.mastery/all_wrong": 1 / 6,
        "training.train/length rise": 2,
        "training.train/length at the last step": 3,
        # Cohorts of two and of one prompt; a prompt counts once.
        "mastery.accuracy_lag_1": (7 + 5 + 7) / 24,
        "mastery.same_policy": (8 + 7 + 8) / 24,
        # Each step counts once: 3/16 and 1/8.
        "mastery.gap": (3 / 16 + 1 / 8) / 2,
        "mastery.drift_share": 4 / 5,
        "entropy.rise": 0.5,
        "entropy.kept": 0.7 / 0.2,
        "paper-claims.weight_lost": (0.48 + 0.43) / 2 - 0.32,
        "paper-claims.weight_majority": (0.48 + 0.43 + 0.33 + 0.31) / 4,
        "methods.zero_variance": (3 / 4 + 2 / 4 + 2 / 4) / 3,
        "methods.least_zero_variance": 2 / 4,
        "methods.largest_zero_variance": 3 / 4,
        "methods.clipped": 0.3,
        "methods.hardest pass@1": 1 / 8,
        "methods.best@8 over pass@1": (1 + middle + hard) / 3 - 11 / 24,
    }
    found = {name: numbers.of_run(runs, run, name)[numbers.WHOLE] for name in expected}
    assert found == pytest.approx(expected)
    # Two cohorts are too few for five parts, or for swings before and after; only one of them has two prompts.
    absent = ("mastery.deepest_gap", "mastery.swings", "paper-claims.early_swings", "paper-claims.promoted")
    assert not any(numbers.of_run(runs, run, name) for name in absent)
    thirds = {"first third": 2 / 4, "second third": 1 / 4, "last third": 2 / 4}
    rises = {"second third minus first third": -1 / 4, "last third minus second third": 1 / 4}
    # Of nine accuracies, three are low (two prompts), three in the middle (two) and three high (eight).
    ends = {"low end": pytest.approx((3 - 2) * 3 / 12), "high end": pytest.approx((7 - 2) * 3 / 12)}
    for name, parts in {
        "scores.pass@1 by tier": {"k2-3": 1, "k5-6": 2 / 8, "k7-8": 1 / 8},
        "scores.best@8 by tier": {"k2-3": 1, "k5-6": middle, "k7-8": hard},
        "training.mastery/mastered by third": thirds,
        "training.mastery/mastered rise by third": rises,
        "paper-claims.ends": ends,
    }.items():
        assert numbers.of_run(runs, run, name) == parts, name
    assert all(map(numbers.meaning, [*expected, *absent]))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("scores.pas@1", "'scores.pass@1'"), ("entropy.ris", "'entropy.rise'"), ("pass@1", "'scores.pass@1'")],
)
def test_an_unknown_number_is_an_error_with_the_nearest(name: str, nearest: str) -> None:
    with refused("bad_input", nearest):
        numbers.meaning(name)
