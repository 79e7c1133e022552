"""The steps that a spot check trains again, their starting states, and equality of records."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.config import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.runs import catalog, differences, folders, origins
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from mcpo_cli.scheduling import spot_checks
from mcpo_cli.scheduling.spot_checks import Stretch
from tests.errors import refused


def spec(*overrides: str) -> RunSpec:
    (one,) = load.load(["scale=smoke", "train.steps=20", *overrides])
    return one


def test_the_draw_is_of_all_steps_without_repetition() -> None:
    run = spec()
    drawn = {tuple(spot_checks.steps(run, 3, (), seed)) for seed in range(400)}
    assert all(len(set(steps)) == 3 and list(steps) == sorted(steps) for steps in drawn)
    assert {step for steps in drawn for step in steps} == set(range(1, 21))
    assert spot_checks.steps(run, 3, (), 7) == spot_checks.steps(spec(), 3, (), 7)
    assert spot_checks.steps(run, 99, (), 0) == list(range(1, 21))
    assert spot_checks.steps(run, 3, (7, 3, 7), 0) == [3, 7]


def test_a_forks_own_steps_are_those_after_the_fork() -> None:
    fork = replace(spec(), fork="dapo-x@8")
    assert spot_checks.steps(fork, 99, (), 0) == list(range(9, 21))
    with refused("bad_input", "dapo-x") as caught:
        spot_checks.steps(fork, 3, (8,), 0)
    assert caught.value.fix == "mcpo verify dapo-x --at 8"
    with refused("out_of_bounds", "--at 21"):
        spot_checks.steps(fork, 3, (21,), 0)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([3, 4], [Stretch(0, (3, 4))]),
        ([5, 6, 11], [Stretch(0, (5,)), Stretch(5, (6,)), Stretch(10, (11,))]),
        ([7, 10, 20], [Stretch(5, (7, 10)), Stretch(12, (20,))]),
    ],
)
def test_a_stretch_starts_at_the_nearest_state_before(
    mcpo_home: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int], expected: list[Stretch]
) -> None:
    one = spec()
    monkeypatch.setattr(origins, "kept", lambda folder: [5, 10, 12])
    assert spot_checks.stretches(catalog.Run(run_dir(one.run_id), one, {}), asked) == expected
    assert list(expected[-1].steps)[-1] == asked[-1]


def test_a_fork_whose_first_state_is_gone(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = replace(spec(), fork="dapo-x@3")
    monkeypatch.setattr(origins, "kept", lambda folder: [5, 10, 12])
    with refused("bad_input", "step 3"):
        spot_checks.stretches(catalog.Run(run_dir(fork.run_id), fork, {}), [4])


def test_runs_of_verl_are_refused(mcpo_home: Path) -> None:
    (one,) = load.load(["backend=verl", "model=qwen3-0.6b", "scale=one-gpu", "train.steps=2"])
    with refused("bad_input", "verl"):
        spot_checks.check_run(catalog.Run(run_dir(one.run_id), one, {}))


@pytest.mark.parametrize(
    ("one", "other", "exactly", "same"),
    [
        (0.1 + 0.2, 0.3, True, False),
        (1.0, 1.0009, False, True),
        (1.0, 1.002, False, False),
        (0.0, 9e-6, False, True),
        (0.0, 2e-5, False, False),
        (math.nan, math.nan, True, True),
        (True, 1, False, False),
        (None, 0.0, False, False),
    ],
)
def test_what_agrees(one: Any, other: Any, exactly: bool, same: bool) -> None:
    assert differences.agree(one, other, exactly=exactly) is same


def journal(folder: Path, **changed: Any) -> Journal:
    one = spec()
    attempt = Attempt(folder, one, 0)
    attempt.journal.rows("groups", 1, [{"step": 1, "prompt": text, "p": changed.get("p", 0.5)} for text in "ab"])
    sums = {"train/policy_loss": [changed.get("loss", 1.0), 2.0]}
    attempt.journal.rows("mini_batches", 1, [{"step": 1, "mini_batch": 1, "sums": sums}])
    metrics = {"train/reward": 0.5, "sanity/logp_difference": changed.get("rounding", 1e-7), "perf/seconds": 1.0}
    metrics["cost/seconds"] = metrics["system/x"] = changed.get("time", 1.0)
    attempt.journal.step({"step": 1, "time": changed.get("time", 1.0), "metrics": metrics, "weights": "ab"})
    attempt.journal.rows("eval", 1, [{"step": 1, "tier": "t", "problem": "q", "n": 2, "c": 1}] * changed.get("rows", 1))
    attempt.end("done")
    return Journal(folder)


@pytest.mark.parametrize(
    ("changed", "exactly", "expected"),
    [
        ({"time": 9.0}, True, None),
        ({"rounding": 2.0}, False, None),
        ({"rounding": 2e-7}, True, ("metrics", 0, "sanity/logp_difference")),
        ({"p": 0.25, "loss": 3.0}, True, ("groups", 1, "p")),
        ({"loss": 3.0}, False, ("mini_batches", 1, "train/policy_loss (sum)")),
        ({"rows": 2}, True, ("eval", 0, "number of rows")),
    ],
)
def test_the_first_difference_of_a_step(
    tmp_path: Path, changed: dict[str, Any], exactly: bool, expected: tuple[str, int, str] | None
) -> None:
    ours, theirs = journal(tmp_path / "one"), journal(tmp_path / "other", **changed)
    found = differences.of_step(ours, theirs, 1, exactly=exactly)
    first = next(iter(found.differing), None)
    assert (first and (first.records, first.row, first.column)) == expected
    assert found.weights is exactly
    # Two groups of 3 columns, a mini-batch of 4, an evaluation of 5; metrics, and the hash.
    assert found.values == 2 * 3 + 4 + 5 + (3 if exactly else 1)


def test_a_state_that_another_command_has_removed(tmp_path: Path) -> None:
    with refused("run_failed", "step_000010"), folders.unless_removed(tmp_path / "step_000010"):
        (tmp_path / "step_000010" / folders.MANIFEST).read_text()
