"""Runs the notebooks on the runs of this home and stores their outputs: `python .ci/notebooks.py`.

The stored outputs are those of `mcpo reproduce table1 model=toy-s` and `mcpo reproduce table2 model=toy-s`.
"""

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from mcpo_cli.home import home

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
OVERRIDES = "scale=toy model=toy-s"


def main() -> None:
    """Execute each notebook from top to bottom; written only if none of its cells failed."""
    os.environ["MCPO_OVERRIDES"] = OVERRIDES
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        # Times of the machine that ran it say nothing to a reader.
        client = NotebookClient(
            notebook, timeout=600, record_timing=False, resources={"metadata": {"path": str(home())}}
        )
        client.execute()
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
