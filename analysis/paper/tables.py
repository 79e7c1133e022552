"""Tables 1 and 2 of the paper, beside the numbers that the paper printed."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from mcpo_cli.compare.comparison import Comparison
from mcpo_cli.render.markup import Grid
from mcpo_cli.report.comparison import Beside, comparison

from .published import paper
from .sections import PAPER

PAPER_TABLES = {"table1": "Table 1", "table2": "Table 2"}
"""The paper's table of a suite."""


def published(table: str, comparison: Comparison) -> Beside:
    """The paper's numbers of a table, beside those that were measured."""
    document = paper()
    place = document["tables"][table]["where"].split(",")[0]
    label = f"published (arXiv {document['source']['arxiv']}, {place}), not measured here"
    printed = list(published_rows(document, table))
    columns = list(printed[0][2])
    rows = [
        {"block": label, "model": model, "arm": arm, "tier": name, "metric": metric, "mean": value, "at": "steps"}
        for model, arm, numbers in printed
        for (name, metric), value in numbers.items()
    ]
    cells = [[model, arm, *(f"{numbers[column]:.4f}" for column in columns)] for model, arm, numbers in printed]
    header = ["model", "arm", *(f"{name} {metric}" for name, metric in columns)]
    note = (
        "The published numbers come from other models, data and lengths (8B and 14B on AIME and AMC, one run each, no "
        f"error bars), and the paper's pass@8 is the estimator best@8: {document['source']['url']}."
    )
    return Beside(rows, [Grid(label, header, cells, labels=2, is_detail=True)], [note])


def published_rows(document: Mapping[str, Any], table: str) -> Iterator[tuple[str, str, dict[tuple[str, str], float]]]:
    """Each published row of `table` in printed order: model, arm, and its numbers by (benchmark, metric)."""
    benchmarks = document["settings"]["evaluation"]["benchmarks"]
    for row in document["tables"][table]["rows"]:
        numbers = {(name, metric): value for name in benchmarks for metric, value in row[name].items()}
        yield row["model"], row["arm"], numbers


ARTIFACTS = tuple(comparison(name, PAPER, place, partial(published, name)) for name, place in PAPER_TABLES.items())
