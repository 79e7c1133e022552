"""Runs the notebooks in this home and stores their outputs: `python .ci/notebooks.py [NAME ...]`.

01 to 03 read the runs of `mcpo reproduce table1 model=toy-s` and `mcpo reproduce table2 model=toy-s`; 04 trains its own
runs, on a CPU.
"""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from mcpo_cli.home import home

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
OVERRIDES = {"04_mcpo_with_smollm2": "model=smollm2-135m train.steps=4"}
"""The settings of runs that a notebook trains or reads, if they are not `READ`."""
READ = "scale=toy model=toy-s"


def main(names: list[str]) -> None:
    """Execute each notebook, or those named, from top to bottom; written only if none of its cells failed."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        os.environ["MCPO_OVERRIDES"] = OVERRIDES.get(path.stem, READ)
        notebook = nbformat.read(path, as_version=4)
        # Readers do not need the times of the machine that ran it,
        client = NotebookClient(
            notebook, timeout=1800, record_timing=False, resources={"metadata": {"path": str(home())}}
        )
        client.execute()
        # nor progress and addresses of this machine.
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
