"""A failed run is an outcome of its arm: comparisons list it, leave its pair out, and report that."""

import pytest

from mcpo_cli.compare.comparison import Question, records
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.config.load import load
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import MissingRuns
from mcpo_cli.home import run_dir
from mcpo_cli.measures.frames import Runs
from mcpo_cli.runs import attempts
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import drop_torn, read_json
from tests.errors import refused
from tests.fakes import write_run

SEEDS = range(4)
STARVED = "step 2: dynamic sampling found fewer than 8 prompts"


def spec_of() -> RunSpec:
    return load(["scale=smoke"])[0]


def planned(*failing: tuple[str, int]) -> Plan:
    """Four seeds of table1 on one model, on disk; the runs `failing` (arm, seed) ended in an error."""
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0,1,2,3"], "mcpo reproduce table1")
    for run in plan.runs:
        if (run.arm, run.spec.seed) in failing:
            Attempt(run_dir(run.spec.run_id), run.spec, start_step=0).end("failed", STARVED)
        else:
            write_run(run.spec)
    return plan


def test_only_who_asks_for_failed_runs_gets_past_them(mcpo_home: object) -> None:
    plan = planned(("MCPO", 1))
    with refused("missing_runs", "1 of 8"):
        Runs(plan)
    runs = Runs(plan, failed_too=True)
    assert len(runs.planned) == 7
    ((failed, error),) = ((one.planned, one.error) for one in runs.failed)
    assert (failed.arm, failed.spec.seed, error) == ("MCPO", 1, STARVED)
    assert set(runs.eval()["run_id"]) == {run.spec.run_id for run in runs.planned}


@pytest.mark.parametrize(("ended", "pid", "state"), [("", 0, "failed"), ("", 1, "running"), ("done", 0, "done")])
def test_who_is_killed_fails_the_attempt_that_it_had_opened(
    mcpo_home: object, ended: str, pid: int, state: str
) -> None:
    spec = spec_of()
    attempt = Attempt(run_dir(spec.run_id), spec, start_step=0)
    if ended:
        attempt.end("done")
    attempts.mark_failed(run_dir(spec.run_id), attempt.status["pid"] + pid, "it was killed")
    found = read_json(attempt.folder / "status.json")
    assert (found["state"], found.get("error") == "it was killed") == (state, state == "failed")


def test_a_file_that_a_power_cut_tore_ends_with_its_last_whole_row(mcpo_home: object) -> None:
    attempt = Attempt(run_dir("run"), spec_of(), start_step=0)
    drop_torn(attempt.folder / "none.jsonl")
    assert not (attempt.folder / "none.jsonl").exists()
    attempt.journal.step({"step": 1, "time": 1.0, "metrics": {}})
    attempt.journal.close()
    path = attempt.folder / "metrics.jsonl"
    whole = path.read_bytes()
    for torn in (b"", b'{"st', b"\0\0\n"):
        path.write_bytes(whole + torn)
        drop_torn(path)
        assert path.read_bytes() == whole


@pytest.mark.slow
def test_an_unfinished_or_damaged_run_is_no_outcome(mcpo_home: object) -> None:
    plan = planned()
    folder = run_dir(plan.runs[0].spec.run_id)
    next(folder.glob("attempt_1/eval/*.jsonl")).unlink()
    assert attempts.state(folder, plan.runs[0].spec) == "failed"
    with pytest.raises(MissingRuns):
        Runs(plan, failed_too=True)
    more = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=9"], "mcpo reproduce table1")
    with refused("missing_runs", "planned"):
        Runs(more, failed_too=True)


def test_differences_leave_out_the_pairs_of_failed_runs_and_list_the_runs(mcpo_home: object) -> None:
    whole = of_runs(Runs(planned()), Question()).headline["by_seed"].iloc[0]
    found = of_runs(Runs(planned(("MCPO", 1)), failed_too=True), Question())
    assert sorted(found.headline["by_seed"].iloc[0]) == pytest.approx(sorted((whole[0], *whole[2:])))
    assert set(zip(found.arms["arm"], found.arms["seeds"], strict=True)) == {("DAPO", 4), ("MCPO", 3)}
    assert [(run["arm"], run["seed"], run["error"]) for run in records(found.trained.runs, outcome="failed")] == [
        ("MCPO", 1, STARVED)
    ]
    assert len(found.trained.runs) == len(found.trained.plan.runs)
    # The base policy of the failed run's pair is known from the other arm.
    assert set(found.trained.before["seeds"]) == {4}
    assert set(found.sources["arm"]) == {"MCPO"}


@pytest.mark.parametrize("arm", ["DAPO", "MCPO"])
def test_an_arm_without_a_pair_is_refused(arm: str, mcpo_home: object) -> None:
    plan = planned(*((arm, seed) for seed in SEEDS))
    with refused("run_failed") as caught:
        of_runs(Runs(plan, failed_too=True), Question("DAPO"))
    assert STARVED in caught.value.message
