"""Grading of answers: extraction, comparison, and worker processes that cannot hang their caller."""

from mcpo_cli.grading.base import STATUSES, Status, Verdict
from mcpo_cli.grading.pool import Pool, registry

__all__ = ["STATUSES", "Pool", "Status", "Verdict", "registry"]
