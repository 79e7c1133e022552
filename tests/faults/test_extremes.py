"""NaN and infinities in records, and clocks that are set back."""

import itertools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mcpo_cli.config import cost
from mcpo_cli.config import plan as plans
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.plan import Plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.measures.frames import Runs
from mcpo_cli.runs.attempts import Attempt, state
from mcpo_cli.runs.journal import Journal, read_json, write_json
from mcpo_cli.scheduling.speeds import Speeds
from tests import store_runs
from tests.cli.conftest import InProcess
from tests.engine import differences, records, torn, work
from tests.faults.suites import spec_of
from tests.rows import evaluation
from tests.store_runs import begin


def strict(text: str) -> Any:
    """JSON as its standard has it: without NaN."""

    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def make(*overrides: str) -> Plan:
    return plans.from_overrides(["scale=smoke", "compute.tracking_uri=offline", *overrides])


def record(attempt: Attempt, spec: RunSpec, step: int, time: float, **more: float) -> None:
    """Record one step, and the evaluation after it if there is one."""
    if step:
        metrics = {"train/accuracy": step / spec.train.steps, **more}
        attempt.journal.step({"step": step, "time": time, "metrics": metrics})
    if step in eval_steps(spec):
        sizes = spec.task.tier_sizes(spec.eval.problems)
        right = {tier: [2] * size for tier, size in sizes.items()}
        attempt.journal.rows("eval", step, evaluation(step, right, spec.eval.samples))


def test_numbers_that_are_none(here: InProcess) -> None:
    plan = make()
    spec = plan.runs[0].spec
    attempt = begin(spec)
    strange = {"a/nan": math.nan, "a/inf": math.inf, "a/minus": -math.inf}
    for step in range(spec.train.steps + 1):
        record(attempt, spec, step, float(step), **strange)
    attempt.end("done")
    found = Journal(run_dir(spec.run_id)).steps()[-1]["metrics"]
    assert math.isnan(found.pop("a/nan"))
    assert found == {"train/accuracy": 1.0, "a/inf": math.inf, "a/minus": -math.inf}
    frame = Runs(plan).steps()
    assert frame["a/nan"].isna().all()
    assert (frame["a/inf"] == math.inf).all()
    text = here("runs", "show", spec.run_id).stdout
    assert [line.split() for line in text.splitlines() if "a/" in line and "attempt" not in line] == [
        ["a/inf", "inf"],
        ["a/minus", "-inf"],
        ["a/nan", "nan"],
    ]
    metrics = strict(here("runs", "show", spec.run_id, "--json").stdout)["metrics"]
    assert [name for name in strange if math.isfinite(float(metrics[name]))] == []


def test_a_clock_that_is_set_back(here: InProcess) -> None:
    """Between rows and between attempts: steps keep their order, and no duration is negative."""
    plan = make("train.steps=6")
    spec = plan.runs[0].spec
    first = begin(spec)
    for step, moment in enumerate((1000.0, 1001.0, 400.0, 401.0)):
        record(first, spec, step, moment)
    first.durable(2)
    second = begin(spec, start=2)
    for step, moment in ((3, 90.0), (4, 80.0), (5, 70.0), (6, 60.0)):
        record(second, spec, step, moment)
    second.end("done")
    for attempt in (first, second):
        path = attempt.folder / "status.json"
        write_json(path, {**read_json(path), "started": 5000.0, "updated": 10.0})
    rows = Journal(run_dir(spec.run_id)).steps()
    assert [(row["step"], row["time"]) for row in rows] == [
        (1, 1001.0),
        (2, 400.0),
        (3, 90.0),
        (4, 80.0),
        (5, 70.0),
        (6, 60.0),
    ]
    assert state(run_dir(spec.run_id), spec) == "done"
    text = here("runs", "show", spec.run_id).stdout
    ends = [line.rsplit(", ", 1)[1] for line in text.splitlines() if ", from step " in line]
    assert Speeds(here.home).basis([spec]) == "from the cost model"
    assert ends == ["0:00: killed", "0:00"]


READINGS = itertools.count()
"""Number of times that the process read one of these clocks."""


def backwards() -> float:
    return 1.7e9 - 600.0 * next(READINGS)


def of_the_last_year() -> float:
    return 253_402_300_000.0


CLOCKS = [backwards, of_the_last_year]
COMMANDS = (
    "runs list",
    "runs show {0}",
    "runs sync",
    "runs bundle {0} {1} {at}/bundle",
    "runs unbundle {at}/bundle",
    "runs export --to {at}/tables",
    "compare {0} {1}",
    "train scale=smoke --dry-run",
)


@pytest.mark.slow
@pytest.mark.parametrize("clock", CLOCKS)
def test_commands_under_a_clock_that_is_wrong(
    clock: Callable[[], float], here: InProcess, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs were also trained under it; the store has each point once."""
    here.home.mkdir(exist_ok=True)
    database = shutil.copy(empty_store, here.home / "mlflow.db")
    monkeypatch.setattr("time.time", clock)
    specs = [store_runs.spec(0), store_runs.spec(1)]
    for spec in specs:
        store_runs.complete(spec)
    for words in COMMANDS:
        done = here(*words.format(*(spec.run_id for spec in specs), at=tmp_path).split())
        assert done.returncode == 0, (words, done.stderr)
    assert store_runs.differences(here.home, store_runs.plan(*specs), database) == (0, 0)


@pytest.fixture(scope="module")
def killed(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run that was killed in its third step."""
    home = tmp_path_factory.mktemp("killed")
    shutil.copytree(undisturbed / "cache", home / "cache")
    assert work(home, spec_of(), "sampling", 3) != 0
    return home


@pytest.mark.slow
def test_a_run_under_a_clock_that_goes_back(here: InProcess, undisturbed: Path, killed: Path) -> None:
    """In two attempts, the first of which is killed under the correct clock: equal records, and it can be shown."""
    spec = spec_of()
    shutil.copytree(killed, here.home, dirs_exist_ok=True)
    assert work(here.home, spec, clock=backwards) == 0
    assert differences(records(undisturbed, spec), records(here.home, spec)) == (0, 0)
    assert torn(run_dir(spec.run_id)) == 0
    assert here("runs", "show", spec.run_id).returncode == 0
    factor = Speeds(here.home).factor(cost.estimate(spec))
    assert factor is None or factor > 0
