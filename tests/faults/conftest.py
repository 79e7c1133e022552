"""Fixtures of the fault tests."""

from pathlib import Path

import pytest

from tests.cli.conftest import InProcess
from tests.engine import work
from tests.faults.suites import Suite


@pytest.fixture
def here(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InProcess:
    """`mcpo` in this process, in an empty home."""
    return InProcess(mcpo_home, monkeypatch, capsys)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of two undisturbed runs, those of a `Suite`; the first is that of `spec_of()`. Not to be changed."""
    suite = Suite(tmp_path_factory.mktemp("undisturbed"))
    for spec in suite.specs:
        assert work(suite.home, spec) == 0
    return suite.home
