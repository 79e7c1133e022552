"""What fault tests have in common: they record what they injected, and `--reliability-report` makes a page of it."""

import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli import machine
from mcpo_cli.runs.provenance import processor
from tests.faults import reliability
from tests.faults.reliability import Injection, Report

KEY = "injection"


class Faults:
    """Records what a test injected, and fails it where something was lost or wrong."""

    def __init__(self, test: str) -> None:
        self._test = test
        self.injections: list[Injection] = []

    def __call__(
        self, fault: str, *, times: int = 1, lost: int = 0, wrong: int = 0, seconds: Sequence[float] = ()
    ) -> None:
        """Record `fault`, in words, injected `times` times: see `reliability.Injection`. lost and wrong are counted."""
        taken = [round(second, 3) for second in seconds]
        self.injections.append(
            Injection(fault=fault, test=self._test, times=times, lost=lost, wrong=wrong, seconds=taken)
        )


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Iterator[Faults]:
    """See `Faults`; a test that asks for it must record something."""
    found = Faults(f"{request.path.name}::{request.node.originalname}")
    yield found
    request.node.user_properties += [(KEY, one) for one in found.injections]
    assert found.injections, "a fault test that records no fault"
    harm = [one for one in found.injections if one["lost"] or one["wrong"]]
    assert not harm, harm


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reliability-report", metavar="PATH", help="write what fault tests measured to PATH, and its data beside"
    )


class Collector:
    """Gathers the injections of all tests, those of other processes included, and writes the page at the end."""

    def __init__(self, path: Path, command: str) -> None:
        self.path, self.command = path, command
        self.injections: list[Injection] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.injections += [value for key, value in report.user_properties if key == KEY]

    def pytest_sessionfinish(self) -> None:
        memory = psutil.virtual_memory().total / 2**30
        found = f"{machine.cores()} cores of {processor()}, {memory:.0f} GiB, Python {platform.python_version()}"
        report = Report(
            date=datetime.now(UTC).date().isoformat(), command=self.command, machine=found, injections=self.injections
        )
        reliability.write(report, self.path)


def pytest_configure(config: Any) -> None:
    path = config.getoption("--reliability-report", default=None)
    # Where tests run in several processes, each has its part, and the one that started them gets it all.
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Collector(Path(path), "make test-faults"))
