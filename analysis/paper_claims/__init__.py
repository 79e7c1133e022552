"""Verdicts on the claims of the paper."""

from mcpo_cli.report.claims_table import claims_table

from .. import EXPERIMENTS

ARTIFACT = claims_table(EXPERIMENTS / "paper-claims" / "claims.yaml", "Claims of the paper")
