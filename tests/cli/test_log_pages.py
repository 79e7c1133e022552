"""README's and the tutorial's comparisons of logs: every command, in order, prints what the pages show.

`REWRITE_MESSAGES=1` writes what they print now into the pages; the diff is what readers will see.
"""

import importlib.util
import os
import re
import shlex
from pathlib import Path

import pytest

from mcpo_cli import api
from tests.cli.conftest import InProcess

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, as `python examples/made_up_logs.py` leaves it."""
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("made_up_logs", ROOT / "examples" / "made_up_logs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    return tmp_path


def sessions(text: str) -> list[tuple[str, str]]:
    """Each comparison of logs in a page's text, with the output below it."""
    blocks = re.findall(r"```console\n(.*?)\n```", text, re.DOTALL)
    pieces = [piece for block in blocks for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    found = [piece.partition("\n")[::2] for piece in pieces if re.match(r"mcpo compare (base|--arm)", piece)]
    return [(command, shown.strip()) for command, shown in found]


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/is-my-model-better.md", marks=pytest.mark.slow)])
def test_a_page_shows_what_its_commands_print(page: str, here: InProcess, logs: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert sessions(text)
    for command, shown in sessions(text):
        result = here(*shlex.split(command)[1:])
        assert result.returncode == 0, result.stderr
        if os.environ.get("REWRITE_MESSAGES"):
            text = text.replace(f"{command}\n{shown}", f"{command}\n{result.stdout.strip()}")
            (ROOT / page).write_text(text, encoding="utf-8")
        else:
            assert result.stdout.strip() == shown


def test_the_example_in_python_runs(logs: Path) -> None:
    text = (ROOT / "docs" / "is-my-model-better.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    found = names["found"]
    assert isinstance(found, api.LogComparison)
    assert str(found).startswith("new against base: better on sums (+.072)")
