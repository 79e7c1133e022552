"""Table 1 of the paper: DAPO against MCPO on two base models."""

from mcpo_cli.analysis.tables.base import ComparisonTable

ARTIFACT = ComparisonTable(
    name="table1",
    title="DAPO against MCPO",
    suite="table1",
    baseline="DAPO",
    published="table1",
)
