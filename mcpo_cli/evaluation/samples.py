"""Stores samples on disk in one compressed file per problem, written atomically: a kill loses no finished problem."""

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
        """Stores the samples of one problem."""
        drawn = [asdict(sample) for sample in samples]
        record = {"problem": problem.text, "gold": problem.gold, "engine": engine, "samples": drawn}
        # Without a time in the header, equal samples make equal files. JSON escapes lone surrogates.
        write_atomic(self._path(problem.id), gzip.compress(json.dumps(record).encode(), mtime=0))

    def read(self, problem_id: str) -> Drawn | None:
        """The samples drawn for a problem; None if there are none or the file is damaged."""
        try:
            record = json.loads(gzip.decompress(self._path(problem_id).read_bytes()))
            problem = Problem(record["problem"], record["gold"])
            samples = [Sample(**sample) for sample in record["samples"]]
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
            return None
        return Drawn(problem, samples, record["engine"]) if problem.id == problem_id else None

    def has(self, problem: Problem, n: int) -> bool:
        """Whether all `n` samples of a problem are stored and readable."""
        drawn = self.read(problem.id)
        return drawn is not None and drawn.problem == problem and len(drawn.samples) == n

    def _path(self, problem_id: str) -> Path:
        return self.folder / f"{problem_id}.json.gz"
