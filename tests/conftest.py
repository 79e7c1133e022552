"""Fixtures that every folder of tests shares."""

from pathlib import Path

import pytest


@pytest.fixture
def mcpo_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty MCPO_HOME."""
    monkeypatch.setenv("MCPO_HOME", str(tmp_path))
    return tmp_path
