"""Decides whether too many gradings failed for a score to be valid."""

from collections.abc import Mapping
from typing import Any

from mcpo_cli.errors import RunFailed

INFRA_SHARE, INFRA_LEAST = 0.01, 3
"""Too many gradings failed if they exceed both this share of all and this number."""


def check(
    statuses: Mapping[str, int], example: str, data: Mapping[str, Any] | None = None, *, function: bool = False
) -> None:
    """Check that few enough gradings failed for a score, which leaves out and reports `infra_error` verdicts.

    Args:
        statuses: number of verdicts by status. example: the detail of an `infra_error`, for the message.
        data: partial results to attach to the error.
        function: True if a user's function may have failed, whose first error already raises.

    Raises:
        RunFailed: too many gradings failed for reasons other than the answers.
    """
    failed, total = statuses.get("infra_error", 0), sum(statuses.values())
    if failed and function:
        raise RunFailed(
            f"a function failed: {example}",
            fix="correct the function, then repeat the command: a changed function starts new runs",
            data=data,
            code="bad_function",
        )
    if failed > max(INFRA_LEAST, INFRA_SHARE * total):
        raise RunFailed(
            f"{failed} of {total} answers could not be graded, too many for a valid score ({example})",
            fix="fix that, then rerun the same command: all samples and training so far are kept",
            data=data,
            code="ungraded",
        )
