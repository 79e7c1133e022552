"""Fixtures of the fault tests."""

from pathlib import Path

import pytest

from tests.cli.conftest import InProcess


@pytest.fixture
def here(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InProcess:
    """`mcpo` in this process, in an empty home."""
    return InProcess(mcpo_home, monkeypatch, capsys)
