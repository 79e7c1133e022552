"""The comparisons of made-up logs on pages print what the pages show; tests/e2e/test_first_hour.py types the rest.

`REWRITE_MESSAGES=1` writes the current output into a page if it is not cut there.
"""

import os
import runpy
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import InProcess
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
