"""The learning rate of verl's engine moves when our loop says so, not once a call of its update."""

from typing import Any


def take_over(engine: Any) -> None:
    """Let the engine's own `lr_scheduler_step` report the rate only; `advance` moves it."""
    engine.mcpo_advance = engine.lr_scheduler_step
    engine.lr_scheduler_step = lambda: engine.lr_scheduler.get_last_lr()[0]


def advance(engine: Any) -> None:
    """Move the rate to that of the next global step."""
    engine.mcpo_advance()
