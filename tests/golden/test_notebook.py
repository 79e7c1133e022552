"""The notebooks are stored without outputs and run from top to bottom on journals alone."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from mcpo_cli.plan import from_suite
from tests.fakes import write_runs

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


@pytest.mark.slow
def test_table1_notebook_draws_its_figures(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = ["scale=smoke", "model=toy-s", "seed=0,1"]
    write_runs(from_suite("table1", overrides, "mcpo reproduce table1"))
    monkeypatch.setenv("MCPO_OVERRIDES", " ".join(overrides))
    (path,) = (path for path in NOTEBOOKS if path.stem == "table1")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(mcpo_home)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
