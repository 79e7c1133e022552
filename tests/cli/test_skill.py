"""`mcpo help --skill`: every command in it runs and ends as the text says."""

import json
from pathlib import Path

import pytest

from mcpo_cli.commands.skill import SKILL
from tests.cli.conftest import InProcess
from tests.cli.test_compare_logs import solved_of_100

COMMANDS = [line.split() for line in SKILL.splitlines() if line.startswith("       mcpo ")]


def logs(folder: Path) -> None:
    """A `new` that loses 10 of 100 problems of `base`, whose four earlier runs solve 58 to 61."""
    (folder / "old").mkdir()
    for name, solved in (("base", 60), ("new", 50), *((f"old/{solved}", solved) for solved in range(58, 62))):
        solved_of_100(folder / f"{name}.csv", solved)


def words(command: list[str]) -> list[str]:
    return [word.strip("'") for word in command[1:]]


def test_the_commands_on_logs(here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    logs(tmp_path)
    ends = {}
    for command in COMMANDS:
        if command[1] == "compare" and ".csv" in " ".join(command):
            result = here(*words(command))
            ends[" ".join(command[2:])] = result.returncode, json.loads(result.stdout)["comparisons"][0]
    codes = {text: code for text, (code, _) in ends.items()}
    assert codes == {
        "base.csv new.csv --json": 0,
        "base.csv new.csv --gate no-worse:0.05 --json": 6,
        "new.csv --history 'old/*.csv' --gate no-worse --json": 1,
    }
    row = ends["base.csv new.csv --json"][1]["differences"][0]
    for key in ("verdict", "detectable", "needed_problems"):
        assert f"`{key}`" in SKILL
        assert key in row


def test_the_dry_run_starts_nothing(here: InProcess) -> None:
    (command,) = [command for command in COMMANDS if "--dry-run" in command]
    document = here.json(*words(command)[:-1])
    assert len(document["runs"]) == 6
    assert here.untouched()


@pytest.mark.slow
def test_the_training_that_it_shows(here: InProcess) -> None:
    for command in COMMANDS[1:3]:
        document = here.json(*words(command)[:-1])
    assert document["comparisons"][0]["differences"][0]["verdict"]


def test_it_is_printed(here: InProcess) -> None:
    assert here("help", "--skill").stdout == SKILL
