"""Tables 1 and 2 of the paper; verdicts on its claims, on those of other papers, and on forgetting by component."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from mcpo_cli.analysis import claims, measures
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.tables.claims import NOTES, claims_table, verdict_grid, verdict_of
from mcpo_cli.analysis.verdicts import Outcome, outcomes
from mcpo_cli.compare.comparison import Comparison
from mcpo_cli.config.reading import PAPER, read_yaml
from mcpo_cli.report.comparison import Beside, comparison
from mcpo_cli.study import EXPERIMENTS

PAPER_TABLES = {"table1": "Table 1", "table2": "Table 2"}
"""The paper's table of a suite."""
FORGETTING = "forgetting"
BASELINE = "DAPO w/o filter"
FORGETTING_CLAIMS = EXPERIMENTS / "forgetting.yaml"
SHOWN = ("same-policy accuracy", "next-step accuracy", "next-step gap", "deepest next-step gap", "next-step swings")


def published(table: str, found: Comparison) -> Beside:
    """The paper's numbers of a table, beside those that were measured."""
    paper = read_yaml(PAPER)
    where = paper["tables"][table]["where"].split(",")[0]
    label = f"published (arXiv {paper['source']['arxiv']}, {where}), not measured here"
    printed = list(published_rows(paper, table))
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
        f"error bars), and the paper's pass@8 is the estimator best@8: {paper['source']['url']}."
    )
    return Beside(rows, [Grid(label, header, cells, labels=2, is_detail=True)], [note])


def published_rows(paper: Mapping[str, Any], table: str) -> Iterator[tuple[str, str, dict[tuple[str, str], float]]]:
    """Each published row of `table` in printed order: model, arm, and its numbers by (benchmark, metric)."""
    benchmarks = paper["settings"]["evaluation"]["benchmarks"]
    for row in paper["tables"][table]["rows"]:
        numbers = {(name, metric): value for name in benchmarks for metric, value in row[name].items()}
        yield row["model"], row["arm"], numbers


def build_forgetting(data: Mapping[str, Runs]) -> Product:
    """One row per regime, model, arm and statistic, and one per claim, regime and model."""
    runs = data[FORGETTING]
    found = outcomes(claims.read(FORGETTING_CLAIMS), data)
    of_runs = measures.per_run(runs, {name: STATISTICS[name].measure for name in SHOWN})
    rows = measures.rows(of_runs, SHOWN, BASELINE)
    verdicts = [
        {"block": "verdict", "regime": one.regime, "model": one.model, "arm": one.claim.arm, "statistic": one.claim.id}
        | {"mean": one.effect.mean, "low": one.effect.low, "high": one.effect.high, "seeds": one.effect.n}
        | {"p": one.p, "p_holm": one.p_holm, "verdict": one.verdict}
        for one in found
    ]
    notes = [
        f"Means over seeds with 95% t-intervals; in brackets the difference to {BASELINE}, paired by seed.",
        *(f"{name}: {STATISTICS[name].meaning}." for name in SHOWN),
        *NOTES,
    ]
    spec = runs.cells[0].spec
    title = f"Forgetting of mastered prompts (scale {spec.scale}, {spec.train.steps} global steps)"
    return Product(
        title, _sentence(found), pd.DataFrame([*rows, *verdicts]), [*measures.grids(rows), verdict_grid(found)], notes
    )


def _sentence(found: Sequence[Outcome]) -> str:
    parts = "; ".join(f"{one.claim.id} {verdict_of(one)} in {one.regime} ({one.model})" for one in found)
    return f"Verdicts on forgetting, the hinge and the reweight against {BASELINE}: {parts}."


ARTIFACTS = (
    *(comparison(name, "paper", place, partial(published, name)) for name, place in PAPER_TABLES.items()),
    claims_table(EXPERIMENTS / "claims.yaml", "Claims of the paper"),
    # Built only by name: it needs three times as many runs as the paper's claims.
    claims_table(EXPERIMENTS / "method-claims.yaml", "Claims of other papers about their methods", "diagnostic"),
    Artifact(
        FORGETTING, "Forgetting, by component of MCPO", "diagnostic", (FORGETTING,), build_forgetting, "Section 6.4",
        by_regime=True, source=FORGETTING_CLAIMS,
    ),
)  # fmt: skip
