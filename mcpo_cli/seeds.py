"""Derives named random streams from one seed, so that no part of a run can shift another's random numbers."""

import hashlib
from typing import Literal

Stream = Literal[
    "init",
    "warmup",
    "probe",
    "pool",
    "data",
    "sampler",
    "rollout",
    "reward",
    "reroll",
    "method",
    "eval",
    "branch",
    "branch_after",
]


def stream(seed: int, name: Stream, *index: int) -> int:
    """A 63-bit seed for stream `name` at `index` (a step, a round): a pure function of its arguments.

    The seed of step t does not depend on earlier draws, so a resumed run draws what an uninterrupted one draws.
    """
    text = ":".join(map(str, (seed, name, *index)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
