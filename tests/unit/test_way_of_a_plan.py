"""From the command to the scheduler, a plan passes few functions and comes back to none."""

import sys
from collections import Counter
from types import CodeType, FrameType

import pytest

from mcpo_cli.commands import training
from mcpo_cli.config import plan
from mcpo_cli.errors import RunFailed
from mcpo_cli.scheduling import scheduler

CARRIERS = {"Plan", "PlannedRun", "RunSpec", "Estimate", "Expected", "Forecast"}
WORDS = ["scale=smoke", "compute.tracking_uri=offline"]


@pytest.mark.usefixtures("mcpo_home")
def test_a_plan_passes_at_most_35_functions_none_of_them_more_than_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    visits, held = Counter[tuple[CodeType, int]](), list[object]()

    def visit(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and frame.f_lasti <= 2 and "/mcpo_cli/" in code.co_filename and code.co_name[0] != "<":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = [value for name, value in frame.f_locals.items() if name in names and name != "self"]
            firsts = [value[0] if isinstance(value, list | tuple) and value else value for value in given]
            carriers = [value for value in firsts if type(value).__name__ in CARRIERS]
            # A run is the same in its settings, its estimate and its forecast. Objects that are held keep their ids.
            held.extend(getattr(getattr(value, "cell", value), "spec", value) for value in carriers)
            visits.update((code, id(value)) for value in held[len(held) - len(carriers) :])

    monkeypatch.setattr(scheduler._Scheduler, "loop", lambda _: sys.setprofile(None))
    sys.setprofile(visit)
    try:
        with pytest.raises(RunFailed):
            training.execute(plan.from_suite("table1", WORDS, "mcpo train table1"), dry=False, verbose=False)
    finally:
        sys.setprofile(None)
    assert 20 < len({code for code, _ in visits}) <= 35
    assert max(visits.values()) <= 2
