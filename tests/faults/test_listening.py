"""What listens, listens on loopback: MLflow's UI and the processes of Ray and verl on one machine; else it says so."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mcpo_cli.backends.verl import overrides
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.store.mlflow import Store
from tests.store_runs import complete, free_port, plan, spec
from tests.unit.test_store_servers import answer


@contextmanager
def ui(home: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """`mcpo ui` over a store with one run."""
    complete(spec())
    store = Store(f"sqlite:///{home / 'mlflow.db'}")
    store.check()
    store.ingest(plan(spec()))
    command = [sys.executable, "-m", "mcpo_cli.main", "ui", *options]
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(300)


def listening(process: int) -> set[str]:
    """The addresses that a process and its children listen on."""
    family = [psutil.Process(process), *psutil.Process(process).children(recursive=True)]
    found = [connection for one in family for connection in one.net_connections("tcp")]
    return {connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN}


@pytest.mark.slow
@pytest.mark.parametrize(("options", "addresses"), [([], {"127.0.0.1"}), (["--host", "0.0.0.0"], {"0.0.0.0"})])
def test_the_ui_lets_others_in_only_where_it_is_told_to(
    mcpo_home: Path, options: list[str], addresses: set[str]
) -> None:
    port = free_port()
    with ui(mcpo_home, "--port", str(port), *options) as running:
        answer(f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search", {"max_results": 1})
        assert listening(running.pid) == addresses
    assert running.stderr
    said = running.stderr.read()
    running.stderr.close()
    assert ("warning: --host 0.0.0.0 lets everyone" in said) == bool(options)


def settings(*words: str) -> tuple[RunSpec, overrides.Table]:
    (found,) = load(["scale=paper", "model=qwen3-8b", *words])
    return found, overrides.table(found, overrides.planned(found, Path("/home")))


def test_ray_and_the_servers_of_verl_stay_on_one_machine() -> None:
    """Measured by `make test-verl`; here, that the settings which do it are there."""
    alone, table = settings()
    assert overrides.environment(alone)["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert table["+ray_kwargs.ray_init.include_dashboard"] is False
    assert table["+ray_kwargs.ray_init.address"] == "local"
    assert not [key for key, value in table.items() if "host" in key or value in ("0.0.0.0", "::")]


def test_a_cluster_that_is_joined_is_its_owners() -> None:
    joined, table = settings("cluster.ray_address=10.0.0.1:6379", "cluster.nodes=2")
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in overrides.environment(joined)
    assert "+ray_kwargs.ray_init.include_dashboard" not in table
