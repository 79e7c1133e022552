"""The journal: append-only JSON lines, flushed row by row. What it holds is the truth; the rest is derived.

Writing belongs to one attempt. Reading merges the attempts of a run: rows that a later attempt computed
again, because no checkpoint covered them, count once.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from mcpo_cli.store.records import EvalRow, GroupRow, StepRow

Kind = Literal["groups", "eval", "samples"]


class JournalWriter:
    """Writes the rows of one attempt."""

    def __init__(self, attempt_dir: Path) -> None:
        self.folder = attempt_dir
        self._metrics = (attempt_dir / "metrics.jsonl").open("a", encoding="utf-8")

    def step(self, row: StepRow) -> None:
        """Append one global step; on disk (flushed) when this returns."""
        self._metrics.write(dumps(row) + "\n")
        self._metrics.flush()

    def rows(self, kind: Kind, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write all rows of `kind` for one step as a file that is there whole or not at all."""
        write_atomic(self.folder / kind / f"step_{step:06d}.jsonl", "".join(dumps(row) + "\n" for row in rows))

    def close(self) -> None:
        """Flush to the disk itself."""
        self._metrics.flush()
        os.fsync(self._metrics.fileno())
        self._metrics.close()


class Journal:
    """Reads one run: all its attempts, merged. An empty or absent folder is an empty journal."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def attempts(self) -> list[Path]:
        """The attempts' folders, oldest first."""
        found = [path for path in self.run_dir.glob("attempt_*") if (path / "status.json").exists()]
        return sorted(found, key=lambda path: int(path.name.removeprefix("attempt_")))

    def steps(self) -> list[StepRow]:
        """One row a global step, in order."""
        rows = (row for attempt, last in self._spans() for row in read_lines(attempt / "metrics.jsonl") if row["step"] <= last)
        return sorted(cast("Iterable[StepRow]", rows), key=lambda row: row["step"])

    def groups(self) -> list[GroupRow]:
        """The prompt groups of all steps."""
        return cast("list[GroupRow]", self._rows("groups"))

    def eval(self) -> list[EvalRow]:
        """The evaluated problems of all evaluations."""
        return cast("list[EvalRow]", self._rows("eval"))

    def _rows(self, kind: Kind) -> list[dict[str, Any]]:
        files: dict[str, Path] = {}
        for attempt, last in self._spans():
            for path in sorted((attempt / kind).glob("step_*.jsonl")):
                if int(path.stem.removeprefix("step_")) <= last:
                    files[path.name] = path
        return [row for name in sorted(files) for row in read_lines(files[name])]

    def _spans(self) -> Iterator[tuple[Path, float]]:
        """Each attempt with the last step of it that counts: where the next attempt began."""
        attempts = self.attempts()
        starts = [read_json(attempt / "status.json")["start_step"] for attempt in attempts]
        for i, attempt in enumerate(attempts):
            yield attempt, min(starts[i + 1 :], default=math.inf)


def dumps(data: Any) -> str:
    """JSON on one line; non-finite floats become the strings "nan", "inf" and "-inf", which float() reads."""
    return json.dumps(_finite(data), ensure_ascii=False, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON lines file; a last line that a crash cut short is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                row = json.loads(line)
                if "metrics" in row:
                    row["metrics"] = {key: float(value) for key, value in row["metrics"].items()}
                yield row


def read_json(path: Path) -> Any:
    """One JSON document."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_atomic(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
