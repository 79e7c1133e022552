"""Processes that bring a run each to one store, at once, forked from a server that has loaded MLflow for them all."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.synchronize import Barrier

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import StoreError
from mcpo_cli.store.mlflow import Store
from tests.store_runs import begin, evaluate, plan, spec, train

PATIENCE = 600
TRIES = 4


def swarm(home: str, uri: str, seeds: Sequence[int]) -> list[int | None]:
    """Let a process for each of `seeds` do it, with a run of that seed and 4 steps: their exit codes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    start = context.Barrier(len(seeds))
    processes = [context.Process(target=_log, args=(home, uri, seed, start), daemon=True) for seed in seeds]
    for one in processes:
        one.start()
    for one in processes:
        one.join(PATIENCE)
    return [one.exitcode for one in processes]


def _log(home: str, uri: str, seed: int, start: Barrier) -> None:
    """Three times, as of a run that goes on: at its start, at a checkpoint, at its end."""
    os.environ["MCPO_HOME"] = home
    own = spec(seed)
    attempt, store = begin(own), Store(uri)
    start.wait(PATIENCE)
    evaluate(attempt, 0)
    _ingest(store, own)
    train(attempt, range(1, 3))
    evaluate(attempt, 2)
    attempt.durable(2)
    _ingest(store, own)
    train(attempt, range(3, 5))
    evaluate(attempt, 4)
    attempt.end("done")
    _ingest(store, own)


def _ingest(store: Store, own: RunSpec) -> None:
    """As beside a run: who waited for its turn too long, on a machine that has other things to do, comes again."""
    for _ in range(TRIES):
        with suppress(StoreError):
            store.ingest(plan(own))
            return
    sys.exit("the store took nothing")
