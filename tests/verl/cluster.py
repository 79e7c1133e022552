"""A Ray cluster of two nodes that is started independently of the run, for runs that join it."""

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from tests.store_runs import free_port
from tests.verl import LEAN
from tests.verl.conftest import PATIENCE, ROOT, wait

UNUSED = """
import ray, sys, time
ray.init(address=sys.argv[1], log_to_driver=False)
while ray.available_resources() != ray.cluster_resources() or ray.util.list_named_actors(all_namespaces=True):
    time.sleep(0.2)
assert ray.get(ray.remote(lambda: 6 * 7).remote()) == 42
"""
"""A program that waits until the cluster is unused, then uses it."""


class Cluster:
    """Two nodes on this machine, each with a CPU that Ray takes for a GPU."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: list[subprocess.Popen[str]] = []
        # Ray asks for a token by default, but with an address this must be set.
        self.access = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

    def start(self) -> None:
        """Start the first node."""
        self._node("--head", f"--port={self.port}", f"--temp-dir={self.folder}", "--include-dashboard=false")
        wait(self._listens, self.nodes[-1])

    def grow(self) -> None:
        """Start the second node."""
        self._node(f"--address={self.address}")
        wait(lambda: len(self.raylets()) == 2, self.nodes[-1])

    def _node(self, *options: str) -> None:
        # Worker ports of two nodes on one machine would clash unless Ray chooses free ones.
        ports = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
        command = [Path(sys.executable).with_name("ray"), "start", *options, *ports]
        command += ["--node-ip-address=127.0.0.1", "--num-cpus=16", "--num-gpus=1", "--block"]
        env = {**os.environ, **self.access, **LEAN, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
        # pytest shows its output if it fails. Ray gives a node 30 seconds to start; that is not a setting.
        self.nodes.append(subprocess.Popen(command, cwd=self.folder, env=env, text=True))

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _processes(self) -> list[psutil.Process]:
        return [child for node in self.nodes for child in psutil.Process(node.pid).children(recursive=True)]

    def raylets(self) -> list[psutil.Process]:
        """The process of each node that starts actors."""
        return [process for process in self._processes() if process.name() == "raylet"]

    def actors(self) -> list[list[str]]:
        """The actors on each node, by the names that Ray gives its processes."""
        titles = [[" ".join(child.cmdline()) for child in raylet.children()] for raylet in self.raylets()]
        return [[title for title in node if title.startswith("ray::") and "IDLE" not in title] for node in titles]

    def is_as_before(self) -> bool:
        """True if the cluster lives and is unused again."""
        env = {**os.environ, **self.access}
        seen = subprocess.run([sys.executable, "-c", UNUSED, self.address], env=env, timeout=PATIENCE, check=False)
        return seen.returncode == 0 and len(self.raylets()) == 2

    def end(self) -> None:
        """End the cluster's processes, and no others."""
        processes = self._processes()
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.wait(PATIENCE)
        for process in psutil.wait_procs(processes, timeout=10)[1]:
            process.kill()
