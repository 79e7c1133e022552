"""The comparison of logs in the README prints what the README shows; tests/e2e/test_first_hour.py types the rest.

`REWRITE_MESSAGES=1` writes the current output into the README if it is not cut there.
"""

import importlib.util
import os
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import InProcess
from tests.pages import sessions, shows

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_shows_what_a_comparison_of_logs_prints(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("made_up_logs", ROOT / "examples" / "made_up_logs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (session,) = [one for one in sessions(text) if any(command == "mcpo compare base new" for command, _ in one)]
    for command, shown in session:
        verb, *words = shlex.split(command, comments=True)
        if verb != "mcpo":
            continue
        result = here(*words)
        assert result.returncode == 0, result.stderr
        if shown and not shows(shown, result.stdout, numbers=True):
            assert os.environ.get("REWRITE_MESSAGES"), f"{command} printed\n{result.stdout}"
            assert "..." not in shown, f"{command} is cut by hand"
            text = text.replace(f"{command}\n{shown}", f"{command}\n{result.stdout.strip()}")
            (ROOT / "README.md").write_text(text, encoding="utf-8")
