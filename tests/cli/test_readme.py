"""Commands in the README, the tutorial and the findings: mcpo or make would take each of them."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from mcpo_cli.main import app
from tests.cli.conftest import InProcess

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *sorted((ROOT / "experiments" / "findings").glob("*.md"))]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
PLANNED = ("train", "ablate", "reproduce", "probe", "fork")
"""Verbs that start runs: they can show what they would start."""


def commands() -> list[str]:
    """Each line behind a prompt, and each command in a table."""
    lines = re.findall(r"^\$ (.+?)(?:\s+#.*)?$", TEXT, flags=re.MULTILINE)
    tables = "\n".join(line for line in TEXT.splitlines() if line.startswith("| "))
    return list(dict.fromkeys([*lines, *re.findall(r"`(mcpo [^`]+)`", tables)]))


MCPO = [command for command in commands() if command.startswith("mcpo ")]


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`(make [a-z0-9-]+)`", TEXT))))
def test_make_knows_the_target(command: str) -> None:
    dry = subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert dry.returncode == 0, dry.stderr


@pytest.mark.parametrize("command", MCPO)
def test_the_command_line_takes_it(command: str) -> None:
    found: Any = typer.main.get_command(app)
    words = shlex.split(command)[1:]
    context = found.make_context("mcpo", list(words))
    while hasattr(found, "get_command"):
        name, *words = words
        found = found.get_command(context, name)
        assert found, f"{command}: there is no {name}"
        context = found.make_context(name, list(words), parent=context)
    assert context.params


def is_whole(command: str) -> bool:
    """True if the command names no run and no file that readers have to make first."""
    files = [ROOT / word for word in shlex.split(command) if word.endswith(".yaml")]
    return "RUN_ID" not in command and "./my-model" not in command and all(path.exists() for path in files)


@pytest.mark.parametrize("command", [one for one in MCPO if one.split()[1] in PLANNED and is_whole(one)])
def test_its_settings_exist(command: str, here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)[1:]
    result = here(*words, *([] if "--dry-run" in words else ["--dry-run"]))
    assert result.returncode == 0, result.stderr
