"""Builds what is stale of many artifacts in a process a core, before somebody reads them from the disk."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from typing import Any

from mcpo_cli import machine
from mcpo_cli.analysis.artifacts import Workshop, registry
from mcpo_cli.errors import McpoError

_workshop: list[Workshop] = []
"""Of this process, so that its tasks share what they read."""


def prepare(workshop: Workshop, names: Sequence[str]) -> None:
    """Build those of the artifacts `names` that are stale and whose runs are done; errors are for whoever asks next.

    A task is the artifacts of the same suites, which read the same runs. New processes, not forks: numeric libraries
    have threads.
    """
    tasks: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        needs = registry()[name].needs
        if not any(map(workshop.missing, needs)) and workshop.fresh(name) is None:
            tasks.setdefault(needs, []).append(name)
    if len(tasks) < 2:
        return
    largest_first = sorted(tasks.values(), key=len, reverse=True)
    workers = min(machine.cores(), len(tasks))
    with ProcessPoolExecutor(workers, get_context("spawn"), _open, workshop.made_of) as pool:
        list(pool.map(_build, largest_first))


def _open(*made_of: Any) -> None:
    _workshop.append(Workshop(*made_of))


def _build(names: Sequence[str]) -> None:
    for name in names:
        with suppress(McpoError):
            _workshop[0].build(name)
