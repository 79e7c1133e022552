"""Pages show what comparisons of logs print (test_first_hour.py types the rest); mcpo and make take their commands.

`REWRITE_MESSAGES=1` writes the current output into a page if it is not cut there.
"""

import os
import re
import runpy
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.main import app
from tests.cli.conftest import COMMANDS, InProcess
from tests.pages import sessions, shows

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["README.md", "docs/is-my-model-better.md"])
def test_pages_show_what_comparisons_of_logs_print(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "made_up_logs.py"))["main"]()
    text = (ROOT / name).read_text(encoding="utf-8")
    typed = [(command, shown) for session in sessions(text) for command, shown in session]
    compared = [(command, shown) for command, shown in typed if shown and command.startswith("mcpo compare base new")]
    compared += [(command, shown) for command, shown in typed if "seeds/" in command]
    assert compared
    for command, shown in compared:
        result = here(*shlex.split(command, comments=True)[1:])
        assert result.returncode == (6 if "--gate" in command else 0), result.stderr
        if not shows(shown, result.stdout, numbers=True):
            assert os.environ.get("REWRITE_MESSAGES"), f"{command} printed\n{result.stdout}"
            assert "..." not in shown, f"{command} is cut by hand"
            text = text.replace(f"{command}\n{shown}", f"{command}\n{result.stdout.strip()}")
            (ROOT / name).write_text(text, encoding="utf-8")


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
    found: Any = COMMANDS(app)
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
