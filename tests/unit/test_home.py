"""The folder of results: MCPO_HOME, or a default folder that is named once, or an earlier home."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from mcpo_cli import home
from tests.errors import refused


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MCPO_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_that_is_no_home_gets_one_and_it_is_said_once(
    empty: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home.location() == empty / "mcpo-results"
    assert list(empty.iterdir()) == []
    assert home.home() == home.home() == empty / "mcpo-results"
    assert capsys.readouterr().err.count(str(empty / "mcpo-results")) == 1
    monkeypatch.setenv("MCPO_HOME", str(empty / "named"))
    assert home.home() == empty / "named"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("file", ["runs/dapo-toy-s-s0-0123456789ab/spec.json", "evals/some-model/gradings/1"])
def test_a_home_of_before_stays_one(empty: Path, capsys: pytest.CaptureFixture[str], file: str) -> None:
    (empty / file).parent.mkdir(parents=True)
    (empty / file).touch()
    assert home.home() == empty
    assert capsys.readouterr().err == ""


def test_a_project_of_another_kind_is_no_home(empty: Path) -> None:
    (empty / "runs").mkdir()
    (empty / "mlflow.db").touch()
    assert home.location() == empty / "mcpo-results"


@pytest.mark.parametrize("call", ["flock", "lockf"])
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_before_anything_starts(
    empty: Path, number: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, call, refuses)
    monkeypatch.setenv("MCPO_HOME", str(empty / "shared"))
    with refused("cannot_write", "shared", "this file system has no locks") as caught:
        home.home()
    assert "local disk" in str(caught.value.fix)
    assert list((empty / "shared").iterdir()) == []
