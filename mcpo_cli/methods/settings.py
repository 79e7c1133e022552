"""The settings of a run that a method reads."""

from typing import Protocol


class TrainSettings(Protocol):
    """The settings `train.*` of a run that options of a method may contradict."""

    @property
    def prompts(self) -> int:
        """Prompts of a global step, P."""

    @property
    def mini_batch(self) -> int:
        """Prompts of a gradient step; with all P there is one gradient step per global step."""

    @property
    def rollouts(self) -> int:
        """Rollouts of a prompt, G."""

    @property
    def overlong_cache(self) -> int:
        """Tokens before the limit in which reward falls; 0 leaves rewards at 0 and 1."""

    @property
    def overlong_penalty(self) -> float:
        """The penalty at the limit; 0 leaves rewards at 0 and 1."""
