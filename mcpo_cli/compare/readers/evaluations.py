"""Evaluations of mcpo: the samples of a grading, as the reader `mcpo` and `regrade` take them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.compare.log import Log, checked
from mcpo_cli.compare.readers.base import left_out, only
from mcpo_cli.compare.readers.cells import stated
from mcpo_cli.compare.readers.columns import Options
from mcpo_cli.errors import bad_data
from mcpo_cli.evaluation import gradings
from mcpo_cli.evaluation.gradings import Samples
from mcpo_cli.records import GradeRow, Results


def of_evaluation(folder: Path, options: Options) -> Log:
    """The log of an evaluation by the newest grading of each benchmark, without samples that could not be graded.

    Raises:
        ConfigError: it has no complete grading, or lacks the benchmark that was asked for.
    """
    newest = gradings.newest(folder)
    if not newest:
        raise bad_data(f"{folder}: it has no complete grading", fix="mcpo evaluate, with the same model and settings")
    graded = samples_of(folder, newest)
    samples = graded[graded["status"] != "infra_error"].drop(columns=["status", "detail"])
    notes = left_out(folder, len(graded) - len(samples), len(graded), "could not be graded")
    samples["answer"] = samples["answer"].fillna("")
    for name in ("response", "prompt"):
        samples[name] = samples[name].map(gradings.writable, na_action="ignore")
    samples = samples.infer_objects()
    if options.benchmark and len(samples):
        samples = only(folder, samples, options.benchmark)
    facts = {name: stated(_protocol(results, name)) for name, results in newest.items()}
    model = next(iter(newest.values()))["protocol"].get("model_name", folder.name)
    return checked(folder, samples, facts, model, notes=notes)


def samples_of(folder: Path, graded_in: Mapping[str, Results]) -> pd.DataFrame:
    """All samples of benchmarks, each by a grading: with the grader's `status` and `detail`; a response is None if its
    file is lost."""
    rows = (
        row
        for benchmark, results in graded_in.items()
        for graded in gradings.rows(folder, results["grading"], benchmark)
        for row in _samples(folder, benchmark, graded)
    )
    return pd.DataFrame(rows, dtype=object)  # columns of strings refuse lone surrogates


def _samples(folder: Path, benchmark: str, graded: GradeRow) -> Iterator[dict[str, Any]]:
    """The graded samples of one problem."""
    draw = Samples(folder / "samples" / benchmark).read(graded["problem"])
    for at, status in enumerate(graded["statuses"]):
        yield {
            "benchmark": benchmark,
            "problem": graded["problem"],
            "sample": at,
            "correct": float(status == "correct"),
            "answer": graded["answers"][at],
            "gold": graded["gold"],
            "tokens": graded["tokens"][at],
            "response": draw.samples[at].text if draw and at < len(draw.samples) else None,
            "prompt": draw.problem.text if draw else None,
            "status": status,
            "detail": graded["details"][at],
        }


def _protocol(results: Results, benchmark: str) -> dict[str, Any]:
    """The settings of the samples of an evaluation, without the model, in which sides differ."""
    protocol = results["protocol"]
    settings = {name: protocol.get(name) for name in ("temperature", "top_p", "max_tokens", "prompt", "chat", "tasks")}
    engines = ", ".join(results["engines"])
    return {"grader": results["benchmarks"][benchmark]["grader"], "engine": engines, **settings}
