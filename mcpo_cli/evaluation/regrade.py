"""Grades stored samples again, grades a file of answers, and compares graders."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from mcpo_cli import grading, paths
from mcpo_cli.data.files import objects
from mcpo_cli.errors import ConfigError, bad_data, nearest
from mcpo_cli.evaluation import gradings
from mcpo_cli.evaluation.gradings import Drawn, Graded, Graders, Samples
from mcpo_cli.evaluation.run import Progress, record
from mcpo_cli.grading import Status, Verdict
from mcpo_cli.home import location
from mcpo_cli.records import Results
from mcpo_cli.runs.attempts import owned

FORM = 'one JSON object per line: {"gold": "42", "response": "... \\\\boxed{42}"} or {"gold": "42", "prediction": "42"}'


@dataclass(frozen=True)
class Answer:
    """One answer to grade."""

    name: str
    """A name for people: the line, or benchmark, problem and sample."""
    gold: str
    text: str
    extracted: bool
    """True if `text` is the bare answer rather than a whole response."""


def read(path: Path) -> list[Answer]:
    """The answers in a JSON lines file: `gold`, and `response` or `prediction`; an optional `id` names the line.

    Raises:
        ConfigError: the file cannot be read, is empty, or a line has another form.
    """
    read_answers = []
    for number, row in objects(path):
        texts = "" if {"response", "prediction"} & set(row) else "'response' or 'prediction'"
        if missing := texts if "gold" in row else "'gold'":
            raise bad_data(f"{path}, line {number}: no {missing}; it has {', '.join(row) or 'nothing'}", fix=FORM)
        kind = "response" if "response" in row else "prediction"
        for key in ("gold", kind):
            value = row[key]
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                raise bad_data(f"{path}, line {number}: {key} is {type(value).__name__}, not text", fix=FORM)
            if isinstance(value, float) and not math.isfinite(value):
                raise bad_data(f"{path}, line {number}: {key} is {value}, which is not an answer", fix=FORM)
        name = str(row.get("id", f"line {number}"))
        read_answers.append(Answer(name, str(row["gold"]), str(row[kind]), kind == "prediction"))
    if not read_answers:
        raise bad_data(f"{path} is empty", fix=FORM)
    return read_answers


def evaluation(wanted: str) -> Path:
    """The folder of the evaluation `wanted`: an id, the beginning of an id, or a path.

    Raises:
        ConfigError: there is no such evaluation, or it was never graded.
    """
    folders = {
        path.parents[2].name: path.parents[2] for path in (location() / "evals").glob("*/gradings/*/results.json")
    }
    folder = paths.named(wanted)
    if (folder / "protocol.json").is_file():
        folders = {wanted: folder} if gradings.all_of(folder) else {}
    matches = [name for name in folders if name == wanted] or [name for name in folders if name.startswith(wanted)]
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


def stored(folder: Path) -> dict[str, list[Drawn]]:
    """The samples that the newest grading of an evaluation judged, by benchmark.

    Raises:
        RunFailed: some samples are missing or damaged.
    """
    results = gradings.all_of(folder)[-1]
    return {
        name: Samples(folder / "samples" / name).read_all(
            [row["problem"] for row in gradings.rows(folder, results["grading"], name)]
        )
        for name in results["benchmarks"]
    }


def grade_again(
    folder: Path, drawn: Mapping[str, Sequence[Drawn]], chosen: str | None, pools: Graders, progress: Progress
) -> Results:
    """Adds a new grading to an evaluation. chosen: the grader; None means each benchmark's own."""
    newest = gradings.all_of(folder)[-1]
    graded: dict[str, Graded] = {}
    with owned(folder):
        for name, problems in drawn.items():
            grader = chosen or newest["benchmarks"][name]["grader"].split()[0]
            with progress(f"grading {name}", len(problems)) as advance:
                graded[name] = pools.grade(grader, problems, advance)
        about = {name: dict(one) for name, one in newest["benchmarks"].items()}
        return record(folder, newest["label"], newest["deviations"], about, graded, drawn)


def answers(drawn: Mapping[str, Sequence[Drawn]]) -> list[Answer]:
    """All stored samples as answers."""
    return [
        Answer(f"{name}/{one.problem.id}/{number}", one.problem.gold, sample.text, extracted=False)
        for name, problems in drawn.items()
        for one in problems
        for number, sample in enumerate(one.samples)
    ]


def verdicts(folder: Path, results: Results) -> list[Verdict]:
    """A grading's verdict on each sample, in the order of `answers`."""
    rows = [row for name in results["benchmarks"] for row in gradings.rows(folder, results["grading"], name)]
    return [
        Verdict(cast(Status, status), answer, detail)
        for row in rows
        for status, answer, detail in zip(row["statuses"], row["answers"], row["details"], strict=True)
    ]


def grade_answers(
    pools: Graders, grader: str, items: Sequence[Answer], advance: Callable[[], None]
) -> tuple[str, list[Verdict]]:
    """The grader's version and its verdict on each answer, in order."""
    pool = pools.pool(grader)
    futures = [pool.submit(answer.gold, answer.text, extracted=answer.extracted) for answer in items]
    verdicts = []
    for future in futures:
        verdicts.append(future.result())
        advance()
    return pool.version, verdicts


def lines(items: Sequence[Answer], ours: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Each answer with its verdict, as plain data."""
    return [{"name": answer.name, "gold": answer.gold, **asdict(one)} for answer, one in zip(items, ours, strict=True)]


def comparison(
    items: Sequence[Answer], ours: Sequence[Verdict], version: str, theirs: Sequence[Verdict]
) -> dict[str, Any]:
    """Counts of agreement of two graders, and every answer on whose correctness they disagree."""
    pairs = Counter((one.status, other.status) for one, other in zip(ours, theirs, strict=True))
    disagreements = [
        {
            "name": answer.name,
            "gold": answer.gold,
            "status": one.status,
            "answer": one.answer,
            "detail": one.detail,
            "other_status": other.status,
            "other_answer": other.answer,
        }
        for answer, one, other in zip(items, ours, theirs, strict=True)
        if (one.status == "correct") != (other.status == "correct")
    ]
    return {
        "grader": version,
        "agree": len(items) - len(disagreements),
        "disagree": len(disagreements),
        "correct": sum(one.status == "correct" for one in theirs),
        "statuses": [{"ours": a, "theirs": b, "count": count} for (a, b), count in sorted(pairs.items())],
        "disagreements": disagreements,
    }


def check_graders(names: Sequence[str]) -> None:
    """Checks that all of `names` are graders.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        if name not in grading.registry():
            raise ConfigError(f"unknown grader '{name}': {nearest(name, grading.registry())}", code="unknown_name")
