"""Table 2 of the paper: MCPO with each of its components taken away."""

from mcpo_cli.analysis.tables.base import comparison_table

ARTIFACT = comparison_table("table2", "Ablations of MCPO", baseline="MCPO")
