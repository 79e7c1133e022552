"""An installation without the extras: their features are refused with the command that installs them."""

from pathlib import Path

import pytest

from mcpo_cli import doctor as machine_checks
from mcpo_cli import extras
from mcpo_cli.trackers import resolve
from tests.cli.conftest import InProcess
from tests.errors import refused


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda module: module not in extras.EXTRAS)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("command", ["ui", "runs sync", "train compute.tracking_uri=http://127.0.0.1:1"])
def test_a_verb_names_the_extra_that_it_needs(here: InProcess, command: str) -> None:
    result = here(*command.split())
    assert result.returncode == 2
    assert "pip install 'mcpo-cli[mlflow]'" in result.stderr


@pytest.mark.usefixtures("bare")
def test_a_tracker_that_is_not_installed_is_named_before_a_run_starts(here: InProcess) -> None:
    result = here("train", "scale=smoke", "cluster.loggers=[wandb]")
    assert (result.returncode, "pip install 'mcpo-cli[wandb]'" in result.stderr) == (2, True)
    assert not (here.home / "runs").exists()


@pytest.mark.usefixtures("bare")
def test_there_is_no_store_unless_one_is_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert resolve("") is None
    assert resolve("offline") is None
    with refused("not_installed"):
        resolve("sqlite:////tmp/elsewhere.db")


@pytest.mark.parametrize(
    ("text", "state"),
    [("from mcpo_cli.main import main", "ok"), ("from mcpo import app", "wrong"), (None, "missing")],
)
def test_doctor_sees_another_program_of_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, state: str
) -> None:
    if text:
        (tmp_path / "mcpo").write_text(f"#!/usr/bin/env python\n{text}\n")
        (tmp_path / "mcpo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (line,) = machine_checks._command()
    assert line.state == state
    assert ("mcpo-lab" in line.fix) == (state != "ok")
