"""Estimates corrected by the steps of runs that have not ended: journals with given times."""

from pathlib import Path

import pytest

from mcpo_cli.config import cost
from mcpo_cli.config import plan as plans
from mcpo_cli.config.cost import LOADING_SECONDS, START_SECONDS
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt, owned
from mcpo_cli.runs.journal import write_json
from mcpo_cli.scheduling.forecast import Expected, forecast, makespan
from mcpo_cli.scheduling.speeds import Speeds

pytestmark = pytest.mark.usefixtures("home")

WARM = ("scale=smoke", "warmup.target_accuracy=0", "train.steps=10")


def recorded(spec: RunSpec, times: dict[int, float], start: int = 0) -> Attempt:
    """An open attempt whose steps were recorded at these times in seconds."""
    folder = run_dir(spec.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "spec.json", spec.to_dict())
    attempt = Attempt(folder, spec, start)
    for step, time in times.items():
        attempt.journal.step({"step": step, "time": time, "metrics": {}})
    return attempt


def expected(*specs: RunSpec) -> list[Expected]:
    return forecast(plans.Plan("", "", tuple(plans.PlannedRun("", spec) for spec in specs))).in_table


def left(*specs: RunSpec) -> list[float]:
    """Estimated seconds of each run without the start-up of its worker."""
    return [run.seconds_left - START_SECONDS for run in expected(*specs)]


def test_the_first_steps_of_a_running_run_correct_its_estimate_and_those_of_its_kind(home: Path) -> None:
    running, waiting, other = (load([*WARM, *more])[0] for more in ((), ("seed=1",), ("model=toy-m",)))
    (modelled,) = left(other)
    attempt = recorded(running, {1: 100.0, 2: 107.0, 3: 114.0})
    with owned(run_dir(running.run_id)):
        # Seven seconds per step: 70 for the whole run, 49 for the rest of it.
        assert left(waiting, running, other) == pytest.approx([70, 49, modelled])
        speeds = Speeds(home)
        assert speeds.basis([running, waiting]).endswith("the steps that 1 run(s) have done here")
        assert speeds.basis([other]) == "from the cost model"
        attempt.journal.step({"step": 4, "time": 127.0, "metrics": {}})
        before = speeds.factor(cost.estimate(waiting))
        assert before
        assert Speeds(home).factor(cost.estimate(waiting)) == pytest.approx(before * 9 / 7)


def test_all_attempts_count_however_they_ended() -> None:
    (spec,) = load([*WARM])
    recorded(spec, {1: 0.0, 2: 4.0, 3: 8.0}).end("failed", "out of memory")
    recorded(spec, {2: 500.0}, start=1).end("interrupted")
    recorded(spec, {2: 1000.0, 3: 1010.0}, start=1)
    # Three timed steps took 4 + 4 + 10 seconds; nothing is known of the time between attempts. Seven are left.
    assert left(spec) == [pytest.approx(7 * 18 / 3)]


def test_a_run_is_estimated_by_its_own_steps_others_by_all_of_their_kind() -> None:
    quick, slow, waiting = (load([*WARM, f"seed={seed}"])[0] for seed in range(3))
    recorded(quick, {1: 0.0, 2: 2.0})
    recorded(slow, {1: 0.0, 2: 6.0})
    assert left(quick, slow, waiting) == pytest.approx([2 * 8, 6 * 8, 4 * 10])


def test_steps_do_not_correct_the_time_of_a_warm_up() -> None:
    """A step at scale=smoke takes the time of its files, not of its tokens."""
    quick, cold = load(list(WARM))[0], load(["task=countdown", "scale=smoke", "train.steps=10"])[0]
    recorded(quick, {step: 0.2 * step for step in range(1, 5)})
    assert left(cold) == [pytest.approx(cost.estimate(cold).warmup + 10 * 0.2, rel=0.5)]


def test_the_end_is_that_of_runs_in_the_order_of_their_starts() -> None:
    """All arms of a seed come first; the table has all seeds of an arm first."""
    plan = plans.from_overrides([*WARM[:2], "train.steps=10,400", "seed=0,1", "compute.parallel=2"])
    assert [(planned.spec.train.steps, planned.spec.seed) for planned in plan.runs] == [
        (10, 0),
        (10, 1),
        (400, 0),
        (400, 1),
    ]
    found = forecast(plan)
    short, _, long, _ = (run.seconds_left for run in found.in_table)
    assert found.seconds == pytest.approx(LOADING_SECONDS + short + short + long)


def test_measured_steps_correct_gpu_hours() -> None:
    running, waiting = (
        load(["scale=paper", "model=qwen3-8b", "train.steps=100", f"seed={seed}"])[0] for seed in (0, 1)
    )
    assert [run.gpus for run in expected(running)] == [cost.estimate(running).gpus]
    # A step in 1.5 times the modelled time.
    modelled = cost.estimate(running).training / 100
    recorded(running, {1: 0.0, 3: 3.0 * modelled})
    for spec, run in zip((running, waiting), expected(running, waiting), strict=True):
        assert run.gpus
        modelled_gpus = cost.estimate(spec).gpus
        assert modelled_gpus
        assert run.gpus.seconds == pytest.approx(1.5 * modelled_gpus.seconds)
        assert run.gpus.sampled == modelled_gpus.sampled


@pytest.mark.parametrize(
    ("overrides", "without"),
    [
        (
            ["method.beta=0.3,1.0", "train.mini_batch=8", "train.prompts=8"],
            ["method.hinge, method.beta and method.delta"],
        ),
        (["method.beta=0.3,1.0", "train.mini_batch=4", "train.prompts=8"], []),
        (["method.hinge=false", "method.delta=0.1", "method.normalize=all"], ["method.delta, method.normalize"]),
        (["method.beta=0"], []),
        (["method=dapo", "method.clip_low=0.1", "train.mini_batch=8", "train.prompts=8"], ["method.clip_low"]),
        (["method=dapo", "train.mini_batch=8", "train.prompts=8"], []),
    ],
)
def test_options_that_cannot_act_get_one_line(overrides: list[str], without: list[str]) -> None:
    cautions = list(forecast(plans.from_overrides([*WARM, *overrides])).cautions)
    assert [line.partition("no effect of ")[2] for line in cautions] == without


def test_more_workers_than_runs_take_no_memory() -> None:
    assert makespan([3.0, 1.0], 2**31 - 1) == 3.0
    assert makespan([], 1) == 0.0
