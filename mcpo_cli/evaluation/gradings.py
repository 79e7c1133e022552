"""The samples and gradings of an evaluation on the disk: written whole, never replaced."""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from mcpo_cli import grading, paths
from mcpo_cli.config.evaluation import Grading
from mcpo_cli.data.base import Problem
from mcpo_cli.errors import ConfigError, RunFailed, nearest
from mcpo_cli.evaluation import metrics
from mcpo_cli.evaluation.engines import Sample
from mcpo_cli.grading import Grade, Pool
from mcpo_cli.home import is_plain, location
from mcpo_cli.records import GradeRow, Results
from mcpo_cli.runs.journal import dumps, read_json, read_lines, write_atomic


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
        rows = [asdict(sample) for sample in samples]
        record = {"problem": problem.text, "gold": problem.gold, "engine": engine, "samples": rows}
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

    def read_all(self, problem_ids: Sequence[str]) -> list[Drawn]:
        """The samples of these problems. Raises RunFailed if some are missing or damaged."""
        draws = [self.read(problem_id) for problem_id in problem_ids]
        if losses := draws.count(None):
            raise RunFailed(
                f"{self.folder}: {losses} of {len(draws)} problems have lost their samples",
                fix="mcpo evaluate",
                code="damaged",
            )
        return [draw for draw in draws if draw is not None]

    def has(self, problem: Problem, n: int) -> bool:
        """True if exactly `n` samples of this problem are stored and readable."""
        draw = self.read(problem.id)
        return draw is not None and draw.problem == problem and len(draw.samples) == n

    def _path(self, problem_id: str) -> Path:
        return self.folder / f"{problem_id}.json.gz"


ANSWER_CHARS = 200
"""Characters of an answer kept in a grading row; the sample holds the whole text."""


@dataclass(frozen=True)
class BenchmarkGrading:
    """The grading rows of a benchmark, one per problem, and the version of the grader."""

    rows: list[GradeRow]
    grader: str


class Graders:
    """Worker pools, one per grader, opened on first use."""

    def __init__(self, settings: Grading) -> None:
        self.settings = settings
        self._pools: dict[str, Pool] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Graders":
        return self

    def __exit__(self, *details: Any) -> None:
        self._stack.close()

    def grade(self, grader: str, draws: Sequence[Drawn], advance: Callable[[], None]) -> BenchmarkGrading:
        """Grades all samples of a benchmark and calls `advance` after each problem.

        Raises:
            RunFailed: too many gradings failed for reasons other than the answers.
        """
        pool = self.pool(grader)
        pending = [[pool.submit(draw.problem.gold, sample.text) for sample in draw.samples] for draw in draws]
        rows: list[GradeRow] = []
        grades: list[Grade] = []
        for draw, futures in zip(draws, pending, strict=True):
            verdicts = [future.result() for future in futures]
            rows.append(_row(draw, verdicts))
            grades += verdicts
            advance()
        grading.check(grades)
        return BenchmarkGrading(rows, pool.version)

    def pool(self, grader: str) -> Pool:
        """The pool of `grader`."""
        if grader not in self._pools:
            self._pools[grader] = self._stack.enter_context(Pool(grader, **vars(self.settings)))
        return self._pools[grader]


def write(folder: Path, results: Results, rows: Mapping[str, Sequence[GradeRow]]) -> None:
    """Adds a grading to the evaluation in `folder`. `results.json` is written last: it marks a complete grading."""
    target = folder / "gradings" / str(results["grading"])
    for benchmark, graded in rows.items():
        write_atomic(target / f"{benchmark}.jsonl", "".join(f"{dumps(row)}\n" for row in graded))
    write_atomic(target / "results.json", json.dumps(json.loads(dumps(results)), indent=2))


def all_of(folder: Path) -> list[Results]:
    """All complete gradings of the evaluation in `folder`, oldest first.

    Raises:
        ConfigError: a record has the number of another grading, an unsafe benchmark name, or is not a record.
    """
    return [
        _results(folder / "gradings" / str(number) / "results.json", number)
        for number in _numbers(folder, "*/results.json")
    ]


def newest(folder: Path) -> dict[str, Results]:
    """The newest complete grading of each benchmark. Raises ConfigError: see `all_of`."""
    return {name: results for results in all_of(folder) for name in results["benchmarks"]}


def _numbers(folder: Path, pattern: str = "*") -> list[int]:
    """The numbers of gradings; folders with other names are ignored."""
    names = {path.relative_to(folder / "gradings").parts[0] for path in folder.glob(f"gradings/{pattern}")}
    return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]{0,8}", name))


def _results(path: Path, number: int) -> Results:
    results = cast(Results, read_json(path))
    try:
        if results["grading"] != number or not all(map(is_plain, results["benchmarks"])):
            raise ValueError("another number, or an unsafe name")
        results.setdefault("shortfalls", [])  # version 0.1.0 has them among the deviations
        for benchmark in results["benchmarks"].values():
            # JSON has no NaN; it is stored as text.
            benchmark["metrics"] = {key: float(value) for key, value in benchmark["metrics"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not the record of that grading", code="damaged") from error
    return results


def find(wanted: str) -> Path:
    """The folder of the graded evaluation `wanted`: an id, the beginning of an id, or a path.

    Raises:
        ConfigError: there is no such evaluation, or it was never graded.
    """
    folders = {
        path.parents[2].name: path.parents[2] for path in (location() / "evals").glob("*/gradings/*/results.json")
    }
    folder = paths.named(wanted)
    if (folder / "protocol.json").is_file():
        folders = {wanted: folder} if all_of(folder) else {}
    begin_so = [name for name in folders if wanted and name.startswith(wanted)]
    matches = [name for name in begin_so if name == wanted] or begin_so
    if len(matches) == 1:
        return folders[matches[0]]
    if len(matches) > 1:
        raise ConfigError(
            f"'{wanted}' could be any of {len(matches)} evaluations: {', '.join(sorted(matches))}",
            code="duplicate_name",
        )
    hint = nearest(wanted, folders) if folders else f"there are none in {location()}"
    raise ConfigError(
        f"no such file, and no graded evaluation '{wanted}': {hint}", fix="mcpo grade FILE.jsonl", code="not_found"
    )


def rows(folder: Path, grading: int, benchmark: str) -> list[GradeRow]:
    """The rows of one benchmark of one grading."""
    return [cast(GradeRow, row) for row in read_lines(folder / "gradings" / str(grading) / f"{benchmark}.jsonl")]


def next_number(folder: Path) -> int:
    """The number of the next grading; an interrupted grading keeps its number."""
    return 1 + max(_numbers(folder), default=0)


def writable(text: str) -> str:
    """`text` with a question mark for each lone surrogate, which UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def _row(draw: Drawn, verdicts: Sequence[Grade]) -> GradeRow:
    statuses = [verdict.status for verdict in verdicts]
    long_texts = [sample.text for sample in draw.samples if sample.tokens >= metrics.ALIKE_TOKENS]
    return GradeRow(
        problem=draw.problem.id,
        gold=draw.problem.gold,
        n=len(statuses) - statuses.count("infra_error"),
        c=statuses.count("correct"),
        statuses=list(statuses),
        answers=[None if verdict.answer is None else writable(verdict.answer[:ANSWER_CHARS]) for verdict in verdicts],
        details=[verdict.detail for verdict in verdicts],
        tokens=[sample.tokens for sample in draw.samples],
        finishes=[sample.finish for sample in draw.samples],
        copies=metrics.copies([sample.text for sample in draw.samples]),
        long_copies=metrics.copies(long_texts),
    )
