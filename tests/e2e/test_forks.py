"""Forks of real runs: without a change they equal the original run; with one they meet the same prompts."""

import shlex
from pathlib import Path

import pandas as pd
import pytest
from safetensors.torch import load_file

from mcpo_cli.config import forking, load
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.measures import get
from mcpo_cli.runs import origins
from mcpo_cli.runs.attempts import Attempt, state
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.scheduling import start
from tests.cli.conftest import InProcess
from tests.errors import refused

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]
PARENT = (
    "method=dapo method.dynamic_sampling=false train.steps=4 train.prompts=32 train.rollouts=4 train.mini_batch=8 "
    "train.lr=1e-3 eval.problems=20 eval.samples=2 eval.every=2 compute.threads=1 compute.checkpoint_every=1 "
    "compute.checkpoints=9 compute.checkpoints_after=9"
)


@pytest.fixture(scope="module")
def parent(home: Path) -> RunSpec:
    (spec,) = load.load(PARENT.split())
    start.train(Plan("train", "mcpo train", (PlannedRun("arm", spec),)))
    return spec


def forked(parent: RunSpec, step: int, *overrides: str) -> RunSpec:
    plan = forking.plan(parent, step, overrides, "mcpo fork")
    start.train(plan)
    (run,) = plan.runs
    return run.spec


def weights(spec: RunSpec) -> Path:
    return Journal(run_dir(spec.run_id)).attempts()[-1] / "policy" / "model.safetensors"


def test_a_fork_without_a_change_is_the_run_that_it_left(parent: RunSpec) -> None:
    fork = forked(parent, 1)
    assert fork.run_id != parent.run_id
    ours, theirs = (load_file(weights(spec)) for spec in (fork, parent))
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    journals = [Journal(run_dir(spec.run_id)) for spec in (fork, parent)]
    for read in (Journal.groups, Journal.eval, Journal.mini_batches):
        assert read(journals[0]) == read(journals[1])
    metrics = [[row["metrics"]["train/policy_loss"] for row in journal.steps()] for journal in journals]
    assert metrics[0] == metrics[1]
    finding = get("fork").measure(fork, journals[0])
    assert finding.values["held_out"] == finding.values["training"] == finding.values["changed"] == 0


def test_forks_meet_the_same_prompts_and_differ_after_their_first_step(parent: RunSpec) -> None:
    fork = forked(parent, 2, "train.lr=2e-3")
    groups = [Journal(run_dir(spec.run_id)).groups() for spec in (fork, parent)]
    assert [(row["step"], row["prompt"]) for row in groups[0]] == [(row["step"], row["prompt"]) for row in groups[1]]
    accuracy = [pd.DataFrame(rows).groupby("step")["p"].mean() for rows in groups]
    assert accuracy[0][3] == accuracy[1][3], "the third batch is sampled before the weights differ"
    finding = get("fork").measure(fork, Journal(run_dir(fork.run_id)))
    # Computed from the rows: the mean over the prompts of steps 3 and 4.
    expected = sum(accuracy[0][step] - accuracy[1][step] for step in (3, 4)) / 2
    assert finding.values["training"] == pytest.approx(expected)
    (row,) = finding.tables["evaluations"]
    assert row["step"] == 4
    assert row["low"] < row["difference"] < row["high"]


def test_a_fork_goes_on_beyond_its_parent(parent: RunSpec) -> None:
    longer = forked(parent, 3, "train.steps=6")
    assert [row["step"] for row in Journal(run_dir(longer.run_id)).steps()] == [1, 2, 3, 4, 5, 6]
    assert state(run_dir(longer.run_id), longer) == "done"
    assert [path.name for path in Journal(run_dir(longer.run_id)).attempts()] == ["attempt_1", "attempt_2"]


def test_a_copy_that_was_killed_is_made_again(parent: RunSpec) -> None:
    """Otherwise the run would train its first steps itself, from the base policy."""
    (run,) = forking.plan(parent, 2, ["train.lr=3e-3"], "mcpo fork").runs
    folder = run_dir(run.spec.run_id)
    torn = Attempt(folder, run.spec, 0)
    torn.journal.step(Journal(run_dir(parent.run_id)).steps()[0])
    torn.journal.close()
    start.train(Plan("fork", "mcpo fork", (run,)))
    assert [read_json(path / "status.json")["start_step"] for path in Journal(folder).attempts()] == [0, 0, 2]
    groups = [Journal(run_dir(spec.run_id)).groups() for spec in (run.spec, parent)]
    before = [[row for row in rows if row["step"] <= 3] for rows in groups]
    assert before[0] == before[1], "the third batch is sampled by the parent's policy"


def test_another_methods_state_stays_behind(parent: RunSpec) -> None:
    fork = forked(parent, 2, "method=spo", "method.dynamic_sampling=false")
    again = forked(fork, 3, "method=mcpo", "method.dynamic_sampling=false")
    assert state(run_dir(again.run_id), again) == "done"


@pytest.mark.parametrize(
    ("step", "overrides", "setting"),
    [
        (2, ["seed=1"], "seed"),
        (2, ["train.prompts=16"], "train.prompts"),
        (2, ["method=mcpo", "method.anchor=previous_step"], "method=mcpo"),
    ],
)
def test_forks_that_cannot_be_meant(parent: RunSpec, step: int, overrides: list[str], setting: str) -> None:
    with refused("bad_input", setting) as caught:
        forking.plan(parent, step, overrides, "mcpo fork")
    assert caught.value.fix


@pytest.mark.parametrize(
    ("step", "overrides", "nearest"),
    [(4, [], 3), (2, ["train.steps=2"], 1), (9, ["train.steps=20"], 3)],
)
def test_a_step_without_steps_after_it_is_refused(
    parent: RunSpec, step: int, overrides: list[str], nearest: int
) -> None:
    """The fix names a step from which both runs can continue."""
    with refused("bad_input", f"--at {step}") as caught:
        forked(parent, step, *overrides)
    assert caught.value.fix == f"--at {nearest}"
    (run,) = forking.plan(parent, nearest, overrides, "mcpo fork").runs
    assert origins.origin(run.spec).spec == parent


def test_a_state_that_was_not_kept_is_refused_before_anything_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by a dry run; the commands of the fix make the state, after which the fork works."""
    cli = InProcess(home, monkeypatch, capsys)
    words = [*PARENT.split()[:-3], "seed=1"]
    (run,) = cli.json("train", *words, "compute.checkpoint_every=4")["runs"]
    fork = ("fork", run["run_id"], "--at", "2", "train.lr=2e-3")
    before = sorted((home / "runs").iterdir())
    refused = cli.refused("bad_input", *fork)
    assert "has kept no state of step 2; steps whose states are kept: none" in refused
    assert cli.refused("bad_input", *fork, "--dry-run") == refused
    assert sorted((home / "runs").iterdir()) == before
    for command in refused.partition("fix: ")[2].split(" && "):
        done = cli(*shlex.split(command)[1:])
        assert done.returncode == 0, done.stderr
    assert cli.json(*fork)["runs"][0]["state"] == "done"


def test_a_run_that_is_no_fork_has_no_such_finding(parent: RunSpec) -> None:
    with refused("run_failed", parent.run_id):
        get("fork").measure(parent, Journal(run_dir(parent.run_id)))
