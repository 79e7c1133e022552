"""Samples on the disk: one compressed file a problem, written whole, so that a kill loses the problem at hand only."""

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mcpo_cli.data.base import Problem
from mcpo_cli.evaluation.engines.base import Sample
from mcpo_cli.runs.journal import write_atomic


@dataclass(frozen=True)
class Drawn:
    """A problem with its samples, and the version of the engine that drew them."""

    problem: Problem
    samples: list[Sample]
    engine: str


class Samples:
    """The samples of one benchmark: `<folder>/<problem id>.json.gz`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, problem: Problem, samples: Sequence[Sample], engine: str) -> None:
        """Keep the samples of one problem."""
        drawn = [asdict(sample) for sample in samples]
        record = {"problem": problem.text, "gold": problem.gold, "engine": engine, "samples": drawn}
        # No time of day in the header: the same samples make the same file. JSON escapes lone surrogates.
        write_atomic(self._path(problem.id), gzip.compress(json.dumps(record).encode(), mtime=0))

    def read(self, problem_id: str) -> Drawn | None:
        """What was drawn for a problem; None where nothing was, or the file is damaged."""
        try:
            record = json.loads(gzip.decompress(self._path(problem_id).read_bytes()))
            problem = Problem(record["problem"], record["gold"])
            samples = [Sample(**sample) for sample in record["samples"]]
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
            return None
        return Drawn(problem, samples, record["engine"]) if problem.id == problem_id else None

    def has(self, problem: Problem, n: int) -> bool:
        """Whether the `n` samples of a problem are there, whole."""
        drawn = self.read(problem.id)
        return drawn is not None and drawn.problem == problem and len(drawn.samples) == n

    def _path(self, problem_id: str) -> Path:
        return self.folder / f"{problem_id}.json.gz"
