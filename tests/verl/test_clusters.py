"""Runs in a Ray cluster that somebody else started: they join it, and leave it as it was."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mcpo_cli.runs.journal import Journal
from tests.store_runs import free_port
from tests.verl import LEAN
from tests.verl.conftest import PATIENCE, ROOT, TOY, Runs, nobody_is_left, phase, status, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]
UNUSED = """
import ray, sys, time
ray.init(address=sys.argv[1], log_to_driver=False)
while ray.available_resources() != ray.cluster_resources() or ray.util.list_named_actors(all_namespaces=True):
    time.sleep(0.2)
assert ray.get(ray.remote(lambda: 6 * 7).remote()) == 42
"""
"""Waits until nobody uses any of the cluster, then uses it."""


class Cluster:
    """Two nodes on this machine, each with a processor that passes for a GPU."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        # Ray asks for a token by default, but whoever names an address must say so.
        self.access = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

    def start(self) -> None:
        """Both nodes, one after the other."""
        self._node("--head", f"--port={self.port}", f"--temp-dir={self.folder}", "--include-dashboard=false")
        wait(self._listens)
        self._node(f"--address={self.address}")
        wait(lambda: len(self.raylets()) == 2)

    def _node(self, *options: str) -> None:
        # Worker ports of two nodes on one machine would clash unless they are any that are free.
        ports = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
        command = [Path(sys.executable).with_name("ray"), "start", *options, *ports]
        command += ["--node-ip-address=127.0.0.1", "--num-cpus=16", "--num-gpus=1", "--block"]
        env = {**os.environ, **self.access, **LEAN, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
        with (self.folder / "nodes.log").open("ab") as log:
            self.nodes.append(subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log))

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _processes(self) -> list[psutil.Process]:
        return [child for node in self.nodes for child in psutil.Process(node.pid).children(recursive=True)]

    def raylets(self) -> list[psutil.Process]:
        """The process of each node that starts actors."""
        return [process for process in self._processes() if process.name() == "raylet"]

    def actors(self) -> list[list[str]]:
        """What runs on each node, by the names that Ray gives its processes."""
        titles = [[" ".join(child.cmdline()) for child in raylet.children()] for raylet in self.raylets()]
        return [[title for title in node if title.startswith("ray::") and "IDLE" not in title] for node in titles]

    def is_as_before(self) -> bool:
        """Whether it lives, and nobody uses it any more."""
        env = {**os.environ, **self.access}
        seen = subprocess.run([sys.executable, "-c", UNUSED, self.address], env=env, timeout=PATIENCE, check=False)
        return seen.returncode == 0 and len(self.raylets()) == 2

    def end(self) -> None:
        """All of its processes, and nobody else's."""
        processes = self._processes()
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.wait(PATIENCE)
        for process in psutil.wait_procs(processes, timeout=10)[1]:
            process.kill()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # Short, because a socket's path has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="mcpo-"))
    found = Cluster(folder)
    try:
        found.start()
        yield found
    finally:
        found.end()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_run_joins_a_cluster_and_leaves_nothing_in_it(runs: Runs, cluster: Cluster) -> None:
    method = ("method=gspo", "method.dynamic_sampling=true")
    settings = (*TOY, *method, "train.steps=2", f"cluster.ray_address={cluster.address}")
    runs.env |= cluster.access
    first = runs.start("train", *settings)
    folder = runs.begun("gspo", first)
    wait(lambda: "evaluation" in phase(folder), first)
    assert any("WorkerDict" in title for node in cluster.actors() for title in node)
    os.kill(status(folder)["pid"], signal.SIGKILL)
    assert first.wait(PATIENCE) != 0
    wait(lambda: nobody_is_left(folder))
    assert cluster.is_as_before()

    second = runs.start("train", *settings, "cluster.nodes=2")
    wait(lambda: "step 1 of" in phase(folder), second)
    assert all(any("WorkerDict" in title for title in node) for node in cluster.actors())
    said, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, said
    assert [row["step"] for row in Journal(folder).steps()] == [1, 2]
    assert not list(folder.glob("attempt_*/ray"))
    assert cluster.is_as_before()
    assert nobody_is_left(folder)
    batches_were_refilled(Journal(folder))


def batches_were_refilled(journal: Journal) -> None:
    for row in journal.steps():
        groups = [group for group in journal.groups() if group["step"] == row["step"]]
        kept = [group for group in groups if group["kept"]]
        assert len(kept) == 8
        assert all(0 < group["p"] < 1 for group in kept)
        assert row["metrics"]["sampling/prompts"] == len(groups)
        assert row["metrics"]["sampling/rounds"] == len(groups) / 8
        # Only groups that the filter threw away are mastered; probes look at them all the same.
        mastered = [group["prompt"] for group in groups if group["p"] == 1]
        again = [roll["prompt"] for roll in journal.rerolls() if roll["origin"] == roll["step"] == row["step"]]
        assert again == mastered[:16]
    # A filter that found nothing to throw away in two steps would have shown nothing.
    assert any(group["p"] in (0, 1) and not group["kept"] for group in journal.groups())
