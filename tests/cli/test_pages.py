"""Pages with output below a command: every command of such a block, in order, prints the output on the page.

`REWRITE_MESSAGES=1` writes the current output into the pages if it is not cut there; the diff shows what readers see.
"""

import importlib.util
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from mcpo_cli import api
from tests.cli.conftest import Cli, InProcess
from tests.pages import sessions, shows

ROOT = Path(__file__).resolve().parents[2]
COMPUTED = [
    "docs/claims-of-others.md",
    pytest.param("docs/is-my-model-better.md", marks=pytest.mark.slow),
]
"""Pages whose numbers are the same on every machine."""
TRAINED = ["branching", "evaluate", "probes", "results"]
"""Pages whose numbers come from training, or depend on the speed of this machine."""
PLUGGED = ["plug-ins", "write-a-method", "write-a-task"]
"""Pages with a folder of plug-ins, which a process reads once."""
FILES = {
    "write-a-task": ["my_tasks/letters.py", "my_tasks/reverse.py"],
    "write-a-method": ["my_methods/my_dr_grpo.py", "my_methods/my_gspo.py"],
}
"""The files that a page tells its reader to save, in the order of the page."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of somebody who saved the files of the pages."""
    monkeypatch.chdir(tmp_path)
    for page, names in FILES.items():
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        for name, source in zip(names, re.findall(r"```python\n(.*?)```", text, re.DOTALL), strict=True):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(source, encoding="utf-8")
    return tmp_path


@pytest.fixture
def logs(folder: Path) -> Path:
    """That folder, after `python examples/made_up_logs.py`."""
    spec = importlib.util.spec_from_file_location("made_up_logs", ROOT / "examples" / "made_up_logs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    return folder


def types(page: str, session: list[tuple[str, str]], mcpo: Cli, *, numbers: bool) -> None:
    """Type a block line by line; each line that shows an output must print it."""
    exported = dict[str, str]()
    for command, shown in session:
        verb, *words = shlex.split(command, comments=True)
        if verb == "export":
            name, _, value = words[0].partition("=")
            exported[name] = value.replace("$PWD", str(Path.cwd()))
            continue
        result = mcpo(*words, **exported)
        assert result.returncode == 0, result.stderr
        if not shown or shows(shown, result.stdout, numbers=numbers):
            continue
        assert os.environ.get("REWRITE_MESSAGES"), f"{page}: {command} printed\n{result.stdout}"
        assert "..." not in shown, f"{page}: {command} is cut by hand"
        text = (ROOT / page).read_text(encoding="utf-8")
        text = text.replace(f"{command}\n{shown}", f"{command}\n{result.stdout.strip()}")
        (ROOT / page).write_text(text, encoding="utf-8")


def test_the_readme_shows_what_a_comparison_of_logs_prints(here: InProcess, logs: Path) -> None:
    """tests/e2e/test_first_hour.py types the rest of the README."""
    found = sessions((ROOT / "README.md").read_text(encoding="utf-8"))
    (session,) = [one for one in found if any(command == "mcpo compare base new" for command, _ in one)]
    types("README.md", [line for line in session if line[0].startswith("mcpo")], here, numbers=True)


@pytest.mark.parametrize("page", COMPUTED)
def test_a_page_shows_what_its_commands_print(page: str, here: InProcess, logs: Path) -> None:
    found = sessions((ROOT / page).read_text(encoding="utf-8"))
    assert found
    for session in found:
        types(page, session, here, numbers=True)


def types_all(page: str, mcpo: Cli) -> None:
    found = sessions((ROOT / page).read_text(encoding="utf-8"))
    assert found
    for session in found:
        types(page, session, mcpo, numbers=False)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", TRAINED)
def test_a_page_shows_what_its_runs_give(page: str, here: InProcess, warm_home: Path, empty_store: Path) -> None:
    shutil.copy(empty_store, warm_home / "mlflow.db")
    types_all(f"docs/{page}.md", here)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", PLUGGED)
def test_a_page_shows_what_new_processes_print(page: str, cli: Cli) -> None:
    types_all(f"docs/{page}.md", cli)


def test_the_example_in_python_runs(logs: Path) -> None:
    text = (ROOT / "docs" / "is-my-model-better.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    found = names["found"]
    assert isinstance(found, api.Comparison)
    assert "new against base: better on sums (+0.072)" in str(found)
