"""Bad input: one message, exit code 2; no run starts and no file is written."""

import errno
import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from mcpo_cli.compare import regrade
from tests.cli.conftest import InProcess


@pytest.mark.parametrize("preset", [[], ["scale=smoke"]], ids=["alone", "in a preset's formula"])
def test_json_holds_the_error_too(here: InProcess, preset: list[str]) -> None:
    result = here("train", *preset, "seed=abc", "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout)["error"] == {
        "code": "bad_input",
        "type": "ConfigError",
        "message": "seed=abc: must be an integer, not str",
        "fix": "seed=0  (the default)",
        "exit_code": 2,
    }


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 7.45 GiB for an array"), RuntimeError("can't start new thread")]
)
def test_memory_that_runs_out_is_no_bug(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """NumPy's message for a file that is too large, or under `ulimit -v`, and Python's where a stack has no room."""
    ends: list[int] = []

    def read(_path: Path) -> None:
        raise error

    monkeypatch.setattr(regrade, "read", read)
    monkeypatch.setattr(os, "_exit", ends.append)
    (tmp_path / "answers.jsonl").write_text("{}\n")
    said = here.refused("no_memory", "grade", str(tmp_path / "answers.jsonl"))
    assert str(error) in said
    assert "bug" not in said
    assert ends == [1]


def test_a_path_that_may_not_be_read_is_no_bug(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text("{}\n")
    monkeypatch.setattr(regrade, "read", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", path)))
    assert f"{path} cannot be used: Permission denied" in here.refused("bad_input", "grade", str(path))


def test_words_that_are_no_options_ask_for_nothing(here: InProcess) -> None:
    """Such words are values of options, or follow `--`."""
    for arguments in (["grade", "x", "--compare", "--json"], ["train", "--", "seed=abc", "--json", "--debug"]):
        result = here(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert "Traceback" not in result.stderr


def test_json_is_one_document_where_answers_could_not_be_graded(here: InProcess, tmp_path: Path) -> None:
    """The document has both the results and the error."""
    path = tmp_path / "answers.jsonl"
    path.write_text((json.dumps({"gold": "$$", "response": "1"}) + "\n") * 5)
    result = here("grade", str(path), "--json", "--workers", "1")
    document = json.loads(result.stdout)
    assert (result.returncode, document["answers"], len(document["lines"])) == (1, 5, 5)
    assert document["error"]["type"] == "RunFailed"
