"""The graders inside an actor of Ray, as in verl's reward loop: without signals, lost answers or left processes."""

import importlib
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from mcpo_cli.grading import Pool
from tests import hostile

pytestmark = pytest.mark.verl
ITEMS = [
    (r"\frac{1}{2}", r"\boxed{0.5}"),
    ("42", hostile.ANSWERS["sum to 10^9"]),
    ("42", r"\boxed{41} or \boxed{42}"),
    (r"\sqrt{2}", "Answer: $\\sqrt2$"),
]
STATUSES = ["correct", "timeout", "wrong", "correct"]


class Grading:
    """Grades from one of the actor's own threads, as an actor does."""

    def statuses(self) -> tuple[list[str], list[int]]:
        """The statuses of ITEMS, and the processes that graded them."""
        with Pool(workers=2, timeout=5.0) as pool:
            served = [process.pid for process in psutil.Process().children(recursive=True)]
            return [verdict.status for verdict in pool.grade(ITEMS)], served

    async def later(self) -> list[str]:
        """The same in an actor with an event loop."""
        return self.statuses()[0]


@pytest.fixture
def ray() -> Iterator[Any]:
    """Imported here, because only the environment of verl has it."""
    ray = importlib.import_module("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_an_actor_grades_as_anybody_does(ray: Any) -> None:
    class Threaded(Grading):
        later: Any = None  # an actor with a coroutine runs everything in its event loop

    threaded, looped = ray.remote(Threaded).remote(), ray.remote(Grading).remote()
    statuses, served = ray.get(threaded.statuses.remote())
    assert statuses == STATUSES
    assert served
    assert not any(psutil.pid_exists(pid) and "grading.worker" in " ".join(cmdline(pid)) for pid in served)
    assert ray.get(looped.later.remote()) == STATUSES


def cmdline(pid: int) -> list[str]:
    """The command of a process; empty if it has ended since."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []
