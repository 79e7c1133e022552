"""When a count of verdicts can be believed."""

from collections.abc import Mapping
from typing import Any

from mcpo_cli.errors import RunFailed

INFRA_SHARE, INFRA_LEAST = 0.01, 3
"""More failed gradings than this share of all, and than this number, are too many."""


def check(statuses: Mapping[str, int], example: str, data: Mapping[str, Any] | None = None) -> None:
    """Whether a score may be made of these verdicts: a few `infra_error` are left out of it and shown.

    Args:
        statuses: number of verdicts by status. example: the detail of an `infra_error`, for the message.
        data: what there is to see nonetheless, for the error.

    Raises:
        RunFailed: too many gradings failed for reasons that are not the answers'.
    """
    failed, total = statuses.get("infra_error", 0), sum(statuses.values())
    if failed > max(INFRA_LEAST, INFRA_SHARE * total):
        raise RunFailed(
            f"{failed} of {total} answers could not be graded; a score without them would not be one ({example})",
            fix="mend that, then the same command again: what was sampled or trained is kept",
            data=data,
        )
