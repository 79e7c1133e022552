"""Verdicts on the claims of other papers about their methods."""

from mcpo_cli.render.product import DIAGNOSTICS
from mcpo_cli.report.claims_table import claims_table

from .. import EXPERIMENTS

ARTIFACT = claims_table(
    # Built only by name: it needs three times as many runs as the paper's claims.
    EXPERIMENTS / "methods" / "method-claims.yaml", "Claims of other papers about their methods", DIAGNOSTICS
)  # fmt: skip
