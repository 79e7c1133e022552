"""The methods of docs/write-a-method.md and of notebook 03, saved as described, pass the conformance kit."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from mcpo_cli.commands.components import app
from mcpo_cli.testing import CHECKS

ROOT = Path(__file__).parents[2]


def told() -> dict[str, str]:
    """The source of each method that readers are asked to save, by its name."""
    page = (ROOT / "docs" / "write-a-method.md").read_text(encoding="utf-8")
    notebook = nbformat.read(ROOT / "notebooks" / "03_add_your_method.ipynb", as_version=4)
    cells = [
        cell.source for cell in notebook.cells if cell.cell_type == "code" and "(Clipped, Normalized)" in cell.source
    ]
    sources = [*re.findall(r"```python\n(.*?)```", page, re.DOTALL), *cells]
    return {re.findall(r'name: ClassVar\[str\] = "(\w+)"', source)[0]: source for source in sources}


def test_page_and_notebook_tell_of_three_methods() -> None:
    assert sorted(told()) == ["my_dr_grpo", "my_gspo", "partial"]


@pytest.mark.parametrize("name", told())
def test_a_method_saved_as_told_passes(name: str, plugin_folder: Path) -> None:
    (plugin_folder / f"{name}.py").write_text(told()[name], encoding="utf-8")
    done = CliRunner().invoke(app, ["check", "method", name, "--json"])
    assert done.exit_code == 0, done.output
    outcomes = json.loads(done.stdout)["checks"]
    assert [outcome["name"] for outcome in outcomes] == [*CHECKS]
    assert all(outcome["passed"] for outcome in outcomes)
