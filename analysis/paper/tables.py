"""Tables 1 and 2 of the paper."""

from mcpo_cli.analysis.tables.comparison import PAPER_TABLES, comparison

ARTIFACTS = tuple(map(comparison, PAPER_TABLES))
