"""One part in a separate process: `python -P -m tests.gpu.process LETTER DEVICE FOLDER`.

Its figures go to `FOLDER/notes.jsonl`, line by line. DEVICE: `cuda`, or `cpu` for a rehearsal.
"""

import sys
from importlib import import_module
from pathlib import Path

from tests.gpu.notes import Notes
from tests.gpu.parts import PARTS

NOTES = "notes.jsonl"


def command(letter: str, device: str, folder: Path) -> list[str]:
    """The command that starts it."""
    return [sys.executable, "-P", "-m", __name__, letter, device, str(folder)]


def main(letter: str, device: str, folder: Path) -> None:
    """Measure the part."""
    import_module(PARTS[letter].module).measure(Notes(folder / NOTES), device, folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
