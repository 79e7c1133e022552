"""Messages of a part's process to pytest: one line per figure, so that a kill of the process loses none."""

import json
from dataclasses import asdict
from pathlib import Path

from tests.gpu.report import Figure, Result


class Notes:
    """Writes and prints the figures of a part as soon as they are measured."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def figure(
        self,
        name: str,
        value: float,
        unit: str,
        meaning: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """One number, and the limits that it is held to."""
        figure = Figure(name, float(value), unit, meaning, at_most, at_least)
        print(f"{name}: {value:.6g} {unit}  {figure.limit}", flush=True)
        self._write({"figure": asdict(figure)})

    def left_out(self, name: str, reason: str) -> None:
        """A figure that cannot be measured here."""
        self._write({"left_out": name, "reason": reason})

    def _write(self, row: dict[str, object]) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def read(file: Path, result: Result) -> None:
    """Add the notes of a part's process to `result`; a last line that was cut short is left out."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    for row in (json.loads(line) for line in lines if line.endswith("\n")):
        if "figure" in row:
            result.figures.append(Figure(**row["figure"]))
        else:
            result.left_out[row["left_out"]] = row["reason"]
