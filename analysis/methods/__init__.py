"""The league of methods, and verdicts on the claims of their papers."""

from mcpo_cli.analysis.tables.claims import claims_table

from .. import EXPERIMENTS
from . import league

ARTIFACTS = (
    league.ARTIFACT,
    # Built only by name: it needs three times as many runs as the paper's claims.
    claims_table(
        EXPERIMENTS / "methods" / "method-claims.yaml", "Claims of other papers about their methods", "diagnostic"
    ),
)
