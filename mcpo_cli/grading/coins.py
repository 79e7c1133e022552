"""The control arm `train.reward=random`: rewards that say nothing about the answer."""

import random
from typing import TYPE_CHECKING

from mcpo_cli.seeds import stream

if TYPE_CHECKING:
    from torch import Tensor


def tossed(correct_PG: "Tensor", seed: int, step: int, first: int) -> "Tensor":
    """A fair coin for each rollout in the place of its verdict, of the shape and type of `correct_PG`.

    Args:
        correct_PG: only its shape and type are used.
        first: place of the first prompt among those of the global step; each prompt has a random stream of its own.
    """
    P, G = correct_PG.shape
    coins = [random.Random(stream(seed, "reward", step, first + i)).choices((0, 1), k=G) for i in range(P)]
    return correct_PG.new_tensor(coins)
