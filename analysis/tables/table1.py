"""Table 1 of the paper: DAPO against MCPO on two base models."""

from mcpo_cli.analysis.tables.base import comparison_table

ARTIFACT = comparison_table("table1", "DAPO against MCPO", baseline="DAPO")
