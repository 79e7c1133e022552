"""A grading of an evaluation as a page: every metric with its standard error, and the samples with their verdicts.

`report.html` loads nothing and has no JavaScript: the filters are CSS. `report.md` has the tables alone.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import stdev
from typing import Any

from mcpo_cli.evaluation import gradings
from mcpo_cli.evaluation.gradings import Samples
from mcpo_cli.records import GradeRow, Results
from mcpo_cli.render import markup, pages
from mcpo_cli.render.markup import Grid
from mcpo_cli.runs.journal import write_atomic

PROBLEMS = 200
"""Most problems of a benchmark that are shown with their samples."""
CHARACTERS = 6000
"""Most characters of a response; a longer one loses its middle."""
HEADER = ("benchmark", "metric", "value", "stderr", "shots", "version")
FILTERS = {"all": "all", "some": "some correct, some not", "none": "none correct", "every": "all correct"}


def write(folder: Path, results: Results) -> Path:
    """Write `report.html` and `report.md` next to the grading `results` of the evaluation in `folder`.

    Returns:
        The path of `report.html`.
    """
    target = folder / "gradings" / str(results["grading"])
    rows = {name: gradings.rows(folder, results["grading"], name) for name in results["benchmarks"]}
    table = grid(results, rows)
    write_atomic(target / "report.md", f"# {results['eval_id']}\n\n{results['label']}\n\n{markup.pipes(table)}\n")
    page = pages.templates(Path(__file__).parent, html=True).get_template("evaluation.html.jinja").render(
        results=results,
        grid=table,
        filters=FILTERS,
        benchmarks={name: list(_problems(folder, name, graded)) for name, graded in rows.items()},
        total={name: len(graded) for name, graded in rows.items()},
        most=PROBLEMS,
    )  # fmt: skip
    write_atomic(target / "report.html", page)
    return target / "report.html"


def grid(results: Results, rows: Mapping[str, Sequence[GradeRow]]) -> Grid:
    """One row per benchmark and metric.

    The standard error of pass@1 is over problems: the deviation of their shares of correct samples, over the square
    root of their number, as lm-evaluation-harness prints it. The other metrics have no standard error.
    """
    shots = "in the prompt" if results["protocol"].get("tasks") else "0"
    lines = []
    for name, benchmark in results["benchmarks"].items():
        version = f"{benchmark['digest']}, graded by {benchmark['grader']}"
        for metric, value in benchmark["metrics"].items():
            if metric.endswith(("_low", "_high")) or math.isnan(value):
                continue
            error = f"{standard_error(rows[name]):.4f}" if metric == "pass_at_1" else "-"
            lines.append([name, metric.replace("_at_", "@"), f"{value:.4f}", error, shots, version])
    return Grid("Metrics", HEADER, lines, labels=2)


def standard_error(rows: Sequence[GradeRow]) -> float:
    """Standard error of the mean over problems of the share of correct samples; NaN for fewer than two problems."""
    shares = [row["c"] / row["n"] for row in rows if row["n"]]
    return stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else math.nan


def _problems(folder: Path, benchmark: str, rows: Sequence[GradeRow]) -> Iterator[dict[str, Any]]:
    """The first problems with their responses: equal responses once, with their number."""
    samples = Samples(folder / "samples" / benchmark)
    for row in rows[:PROBLEMS]:
        if (draw := samples.read(row["problem"])) is None:
            continue
        texts = [sample.text for sample in draw.samples]
        answers = list(zip(texts, row["statuses"], row["answers"], row["finishes"], strict=True))
        kind = "none" if not row["c"] else "every" if row["c"] == row["n"] else "some"
        yield {
            "text": draw.problem.text,
            "gold": row["gold"],
            "correct": f"{row['c']} of {row['n']}",
            "kind": kind,
            "answers": [
                {"count": count, "text": _cut(text), "status": status, "answer": answer, "finish": finish}
                for (text, status, answer, finish), count in Counter(answers).items()
            ],
        }


def _cut(text: str) -> str:
    half = CHARACTERS // 2
    return text if len(text) <= CHARACTERS else f"{text[:half]}\n[...]\n{text[-half:]}"
