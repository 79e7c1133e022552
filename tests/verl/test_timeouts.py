"""How long verl's ranks wait for each other, as verl's own processes find it."""

import os
import subprocess
import sys

import pytest

from mcpo_cli.backends.verl import overrides
from mcpo_cli.config.load import load
from tests.store_runs import free_port
from tests.verl import LEAN
from tests.verl.conftest import PATIENCE, ROOT

pytestmark = pytest.mark.verl
RANK = """
import torch
from verl.workers import engine_workers
engine_workers.initialize_global_process_group_ray(timeout_second=None)
group = torch.distributed.distributed_c10d._get_default_group()
print("timeout", group._get_backend(torch.device("cpu")).options._timeout.total_seconds())
"""
"""What verl's `TrainingWorker` does first."""


def test_ranks_wait_an_hour_for_each_other() -> None:
    (spec,) = load(["scale=verl-cpu"])
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment = {**os.environ, **LEAN, "PYTHONPATH": str(ROOT), **rank, **overrides.environment(spec)}
    ended = subprocess.run(
        [sys.executable, "-c", RANK], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "timeout 3600.0" in ended.stdout, ended.stderr
