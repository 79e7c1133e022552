"""The command line as users meet it: subprocesses in a home of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MCPO = (sys.executable, "-m", "mcpo_cli.main")


class Cli:
    """Runs `mcpo` with MCPO_HOME=`home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
        self.env |= {"MCPO_HOME": str(home), "NO_COLOR": "1"}

    def __call__(self, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*MCPO, *arguments], env=self.env | env, capture_output=True, text=True, check=False, timeout=300
        )

    def json(self, *arguments: str) -> Any:
        """The one document that `--json` prints."""
        result = self(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def untouched(self) -> bool:
        """Whether nothing was written."""
        return not self.home.exists() or not any(self.home.iterdir())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("MCPO_HOME", str(path))
    return path


@pytest.fixture
def cli(home: Path) -> Cli:
    return Cli(home)
