"""A made-up evaluation on the disk: three problems with two samples each, of which 2, 1 and 0 are correct."""

from pathlib import Path

from mcpo_cli.data.base import Problem
from mcpo_cli.evaluation import gradings, metrics
from mcpo_cli.evaluation.engines import Sample
from mcpo_cli.evaluation.gradings import Samples
from mcpo_cli.records import BenchmarkResult, GradeRow, Results

ANSWERS = {"1 + 1": ["2", "2"], "2 + 2": ["4", "5"], "3 + <b>3</b>": ["7", "8"]}


def graded(text: str, answers: list[str]) -> GradeRow:
    gold = str(int(text[0]) * 2)
    return GradeRow(
        problem=Problem(text, gold).id,
        gold=gold,
        n=2,
        c=answers.count(gold),
        statuses=["correct" if answer == gold else "wrong" for answer in answers],
        answers=list(answers),
        details=["", ""],
        tokens=[1, 1],
        finishes=["stop", "length"],
        copies=0,
        long_copies=0,
    )


def made_up(folder: Path) -> Results:
    """Write it into `folder`."""
    rows = [graded(text, answers) for text, answers in ANSWERS.items()]
    for text, answers in ANSWERS.items():
        drawn = [Sample(f"it is {answer}", 1, "stop", 0) for answer in answers]
        Samples(folder / "samples" / "sums").write(Problem(text, str(int(text[0]) * 2)), drawn, "engine")
    found = BenchmarkResult(
        problems=3,
        digest="abc",
        source="file",
        notes=[],
        grader="exact 1",
        metrics=metrics.summarize(rows, 2),
        warnings=[],
    )
    results = Results(
        eval_id="mine-1",
        grading=1,
        time=0.0,
        label="mean@2",
        protocol={"n": 2, "model_name": "mine"},
        deviations=["n=2 instead of 8"],
        shortfalls=[],
        engines=["engine"],
        commit=None,
        dirty=None,
        benchmarks={"sums": found},
    )
    gradings.write(folder, results, {"sums": rows})
    return results
