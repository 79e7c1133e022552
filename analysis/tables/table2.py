"""Table 2 of the paper: MCPO with each of its components taken away."""

from mcpo_cli.analysis.tables.base import ComparisonTable

ARTIFACT = ComparisonTable(
    name="table2",
    title="Ablations of MCPO",
    suite="table2",
    baseline="MCPO",
    published="table2",
)
