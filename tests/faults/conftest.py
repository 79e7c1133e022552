"""Fixtures of the fault tests."""

from pathlib import Path

import pytest

from tests.cli.conftest import InProcess


class Faults:
    """Fails a test where the fault that it injected cost a record, or made one that is different."""

    def __call__(self, fault: str, *, lost: int = 0, wrong: int = 0, **_: object) -> None:
        """Check the outcome of `fault`."""
        assert (lost, wrong) == (0, 0), fault


@pytest.fixture
def faults() -> Faults:
    """See `Faults`."""
    return Faults()


@pytest.fixture
def here(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InProcess:
    """`mcpo` in this process, in an empty home."""
    return InProcess(mcpo_home, monkeypatch, capsys)
