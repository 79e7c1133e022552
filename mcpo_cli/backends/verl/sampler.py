"""verl's replay buffer, which filters groups under dynamic sampling; here it also reports discarded groups."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from mcpo_cli.errors import RunFailed

POLL_SECONDS = 0.1
"""verl's default of 2 s would be most of a small model's step."""
WATCH_SECONDS = 10.0
"""Seconds between two calls of `watch`."""


class Sampler(ReplayBuffer):
    """See `ReplayBuffer`.

    keeps: whether a group of this accuracy stays under dynamic sampling. discard: called with the ids of finished
    groups that are about to be discarded. order: the position of a prompt, by its id, among those of the step.
    watch: called every WATCH_SECONDS while waiting; raises if an actor has died.
    """

    def __init__(
        self,
        keeps: Callable[[float], bool],
        discard: Callable[[set[str]], None],
        order: Callable[[str], int],
        watch: Callable[[], None],
        **options: Any,
    ) -> None:
        super().__init__(poll_interval=POLL_SECONDS, **options)
        self._keeps, self._discard, self._order = keeps, discard, order
        self._watch, self._watched = watch, time.monotonic()

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        # verl would silently continue with the rest of the group.
        if failed := self.failure_keys[partition_id]:
            raise RunFailed(f"step {global_steps}: sampling or grading raised an error for {len(failed)} prompts")
        return super()._terminal_eviction_reasons(global_steps, partition_id)

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        # verl drops all groups of equal verdicts.
        equal, _ = super()._dapo_filtered_keys(partition_id)
        accuracy = self._dapo_classification_cache[partition_id]
        dropped = {uid: accuracy[uid] for uid in equal if not self._keeps(accuracy[uid])}
        return set(dropped), Counter(dropped.values())

    def _select_prompt_uids(
        self, partition_id: str, sampleable_keys: set[str], batch_size: int
    ) -> tuple[Any, Any, Any]:
        # verl takes any that are left over by chance: a set of random ids. Whichever prompts it happened to submit, the
        # first ones of the stream that qualify are the same.
        chosen, partition, steps = super()._select_prompt_uids(partition_id, sampleable_keys, len(sampleable_keys))
        if partition_id == "train":
            chosen = sorted(chosen, key=self._order)
        return chosen[:batch_size], partition, steps

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        if partition_id == "train" and uids:
            self._discard(uids)
        super()._clear_groups(partition_id, uids)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if time.monotonic() - self._watched > WATCH_SECONDS:
            self._watch()
            self._watched = time.monotonic()
        return super()._wait_for_next_poll(partition_id, last_debug_time)
