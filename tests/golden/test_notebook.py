"""The notebooks are stored with the outputs of one run from top to bottom, and run on the journals of real runs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from mcpo_cli.config import plan
from mcpo_cli.scheduling import start

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
OVERRIDES = ["scale=smoke", "model=toy-s", "seed=0,1", "probe.panel_every=1", "compute.tracking_uri=offline"]
FIGURES = {"01_quickstart": 2, "02_mastery_and_forgetting": 2, "03_add_your_method": 1, "04_mcpo_with_smollm2": 1}
TRAINS = {"04_mcpo_with_smollm2": "scale=smoke model=toy-s compute.tracking_uri=offline"}
"""Settings that a notebook trains with here in place of SmolLM2, which would have to be fetched."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_as_it_ran(path: Path) -> None:
    """If not: notebooks/README.md."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == FIGURES[path.stem]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, base_policies: Path) -> Path:
    """A home with the runs of both tables, trained at the smallest scale."""
    home = tmp_path_factory.mktemp("home")
    (home / "cache").symlink_to(base_policies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCPO_HOME", str(home))
        for suite in ("table1", "table2"):
            start.train(plan.from_suite(suite, OVERRIDES, f"mcpo reproduce {suite}"))
    return home


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_draws_its_figures(path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPO_HOME", str(home))
    monkeypatch.setenv("MCPO_OVERRIDES", TRAINS.get(path.stem, " ".join(OVERRIDES)))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(home)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == FIGURES[path.stem]
