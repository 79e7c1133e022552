"""Tables 1 and 2 of the paper, and the verdicts on its claims and on those of other papers about their methods."""

from mcpo_cli.analysis.tables.claims import claims_table
from mcpo_cli.analysis.tables.comparison import PAPER_TABLES, comparison
from mcpo_cli.study import EXPERIMENTS

ARTIFACTS = (
    *map(comparison, PAPER_TABLES),
    claims_table(EXPERIMENTS / "claims.yaml", "Claims of the paper"),
    # Built only by name: it needs three times as many runs as the paper's claims.
    claims_table(EXPERIMENTS / "method-claims.yaml", "Claims of other papers about their methods", "diagnostic"),
)
