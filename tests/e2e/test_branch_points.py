"""Branch points of real runs: an arm without changes is the trunk's own step; estimates agree with many rollouts."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcpo_cli.backends.local import branching as engine
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.train import Trainer
from mcpo_cli.backends.local.update import Updater
from mcpo_cli.config import branching
from mcpo_cli.config.branching import Sizes, Study, Trunk
from mcpo_cli.home import run_dir
from mcpo_cli.methods.mcpo import ACTIVE, FELT
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal, read_json, write_json
from mcpo_cli.scheduling import branches
from tests.engine import trained
from tests.errors import refused

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]
TRUNK = (
    "method=dapo method.dynamic_sampling=false train.steps=3 train.prompts=32 train.rollouts=4 train.mini_batch=8 "
    "train.lr=1e-3 probe.every=0 probe.panel_every=0 eval.problems=20 eval.samples=1 compute.threads=1"
)
ARMS = {"trunk": (), "hinge": ("method=mcpo", "method.reweight=false"), "no step": ("train.lr=1e-12",)}


@pytest.fixture(scope="module")
def trunk(home: Path) -> Trunk:
    """A trained trunk with the states of steps 1 to 3."""
    study = Study(tuple(TRUNK.split()), (1, 2), ARMS, sizes=Sizes(controls=16, held_out=4))
    (found,) = branching.trunks(study, [])
    trained(home, found.spec)
    return found


def measured_twice(trunk: Trunk, step: int, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """The rows of a point, each with the accuracy of 300 other rollouts of its prompt after the step."""
    once = engine.rows

    def twice(arm: str, trainer: Trainer, before: Policy, cohort: engine.Cohort) -> Iterator[Any]:
        _, correct_PG = engine.sample(trainer, cohort.tier, cohort.problems, 300, 90 + cohort.number)
        accuracy_P = correct_PG.double().mean(-1).tolist()
        for row, accuracy in zip(once(arm, trainer, before, cohort), accuracy_P, strict=True):
            yield {**row, "accuracy": accuracy}

    folder = run_dir(trunk.spec.run_id)
    attempt = Attempt(folder / "check", trunk.spec, 0)
    monkeypatch.setattr(engine, "rows", twice)
    engine.branch(trunk, attempt, folder, step)
    attempt.end("done")
    return pd.DataFrame(Journal(folder / "check").rows("branches"))


def rows(trunk: Trunk, step: int) -> pd.DataFrame:
    folder = branches.place(trunk, run_dir(trunk.spec.run_id), step)
    return pd.DataFrame(Journal(folder).rows("branches"))


def spied(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """The results of each arm's global step from now on."""
    seen: list[dict[str, float]] = []
    real: Callable[..., Any] = Updater.global_step

    def global_step(self: Updater, *arguments: Any) -> Any:
        metrics, mini_batches = real(self, *arguments)
        seen.append(metrics)
        return metrics, mini_batches

    monkeypatch.setattr(Updater, "global_step", global_step)
    return seen


def test_an_arm_without_changes_is_the_trunks_own_step_and_rows_say_where_the_hinge_acted(
    trunk: Trunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, folder = spied(monkeypatch), run_dir(trunk.spec.run_id)
    branches.measure_point(trunk, folder, 2)
    own = Journal(folder).steps()[2]["metrics"]
    assert len(seen) == 3
    assert {name: own[name] for name in seen[0]} == seen[0], "the same bits"
    assert seen[1]["train/grad_norm"] != seen[0]["train/grad_norm"]
    measured = pd.DataFrame(branches.rows(dataclasses.replace(trunk, at=(2,)), folder)).groupby("arm")
    felt, drift = measured["prompts_felt"].first(), measured["last_drift"].first()
    arms = dict(zip(trunk.arms, seen, strict=True))
    assert 0 < felt["hinge"] == pytest.approx(arms["hinge"][FELT])
    assert drift["hinge"] > trunk.arms["hinge"].method.delta * arms["hinge"][ACTIVE], "tokens outside of the budget"
    assert np.isnan([felt["trunk"], drift["trunk"]]).all()


def test_the_cohort_is_the_batchs_mastered_prompts(trunk: Trunk) -> None:
    branches.measure_point(trunk, run_dir(trunk.spec.run_id), 1)
    groups = [row for row in Journal(run_dir(trunk.spec.run_id)).groups() if row["step"] == 2]
    measured = rows(trunk, 1)
    mastered = measured[(measured["arm"] == "trunk") & (measured["cohort"] == "mastered")]
    assert set(mastered["prompt"]) == {row["prompt"] for row in groups if row["p"] == 1}
    assert (mastered["n"] == 16).all()
    held_out = measured[(measured["arm"] == "hinge") & (measured["cohort"] == "held_out")]
    assert held_out.groupby("tier").size().tolist() == [20, 20, 20]


def test_a_step_of_no_size_changes_nothing(trunk: Trunk) -> None:
    branches.measure_point(trunk, run_dir(trunk.spec.run_id), 1)
    still = rows(trunk, 1).query("arm == 'no step'")
    assert still["change"].abs().max() < 1e-6
    assert (still["c"] != still["c_after"]).any(), "counting rollouts before and after would see changes here"


def test_a_measurement_that_was_killed_is_made_again_with_the_same_numbers(
    trunk: Trunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_dir(trunk.spec.run_id)
    branches.measure_point(trunk, folder, 1)
    whole = rows(trunk, 1)
    (begun,) = branches.place(trunk, folder, 1).glob("attempt_*")
    status = read_json(begun / "status.json")
    write_json(begun / "status.json", {**status, "state": "running"})
    assert not branches.is_measured(trunk, folder, 1)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            branches.measure_point(trunk, folder, 1)
    branches.measure_point(trunk, folder, 1)
    assert branches.is_measured(trunk, folder, 1)
    pd.testing.assert_frame_equal(rows(trunk, 1), whole)


def test_a_state_that_is_gone_is_named(trunk: Trunk) -> None:
    gone = Trunk(trunk.spec, trunk.arms, (7,), trunk.sizes, trunk.kept_after)
    with refused("bad_input", "step 7"):
        branches.measure_point(gone, run_dir(trunk.spec.run_id), 7)


def test_the_estimate_is_what_many_new_rollouts_say(trunk: Trunk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unbiased, and has the standard error that follows from its spread over prompts."""
    precise = Trunk(trunk.spec, trunk.arms, trunk.at, Sizes(controls=32, held_out=16), trunk.kept_after)
    found = measured_twice(precise, 2, monkeypatch).set_index(["arm", "cohort", "prompt"]).sort_index()
    for cohort in ("mastered", "held_out"):
        before = found.loc["no step", cohort]["accuracy"]
        for arm in ("trunk", "hinge"):
            here = found.loc[arm, cohort]
            truth = (here["accuracy"] - before).to_numpy()
            error = here["change"].to_numpy() - truth
            standard_error = error.std(ddof=1) / np.sqrt(len(error))
            assert abs(error.mean()) < 3.5 * standard_error, (cohort, arm)
            assert standard_error < 0.012, "an estimate that says nothing would pass the line above"
            assert abs(here["balance"].mean()) < 0.03
    moved = found.loc["trunk", "held_out"]
    plain = (moved["c_after"] - moved["c"]) / moved["n"]
    assert moved["change"].std() < 0.8 * plain.std(), "it is more precise than counting the same rollouts"
