"""Overlong reward shaping, apart from correctness."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def penalty(length: "Tensor", max_response: int, cache: int, factor: float) -> "Tensor":
    """DAPO's soft overlong punishment (arXiv 2503.14476, Eq. 13), elementwise, in [-factor, 0].

    Args:
        length: response lengths in tokens, including the end token.
        max_response: hard limit in tokens.
        cache: tokens before the limit over which the penalty grows linearly; 0 switches the penalty off.
    """
    if cache == 0:
        return length.double() * 0
    return -factor * ((length - (max_response - cache)).double() / cache).clamp(0, 1)
