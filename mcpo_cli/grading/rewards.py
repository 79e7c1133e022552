"""Rewards besides the verdict: the penalty on overlong responses, and the control with random rewards."""

import random
from typing import TYPE_CHECKING

from mcpo_cli.seeds import stream

if TYPE_CHECKING:
    from torch import Tensor


def overlong_penalty(length: "Tensor", max_response: int, cache: int, factor: float) -> "Tensor":
    """DAPO's soft overlong punishment (arXiv 2503.14476, Eq. 13), elementwise, in [-factor, 0].

    Args:
        length: response lengths in tokens, including the end token.
        max_response: hard limit in tokens.
        cache: tokens before the limit over which the penalty grows linearly; 0 switches the penalty off.
    """
    if cache == 0:
        return length.double() * 0
    return -factor * ((length - (max_response - cache)).double() / cache).clamp(0, 1)


def random_rewards(correct_PG: "Tensor", seed: int, step: int, first: int) -> "Tensor":
    """A fair coin for each rollout in place of its verdict, like `correct_PG` (train.reward=random).

    Args:
        correct_PG: only its shape and type are used.
        first: index of the first prompt among those of the global step; each prompt has its own random stream.
    """
    P, G = correct_PG.shape
    coins = [random.Random(stream(seed, "reward", step, first + i)).choices((0, 1), k=G) for i in range(P)]
    return correct_PG.new_tensor(coins)
