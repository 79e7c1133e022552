"""Time of `mcpo --help`, against that of the smallest useful typer app, and time to start a worker."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks import growth
from mcpo_cli.scheduling.process import ForkServer

POLL_SECONDS = 0.02
PLAIN_APP = '''\
import typer

app = typer.Typer()


@app.command()
def hello(name: str) -> None:
    """Greet."""
    print(name)


@app.command()
def goodbye(name: str) -> None:
    """Part."""
    print(name)


app()
'''


def seconds(repeats: int, folder: Path) -> tuple[list[float], list[float]]:
    """Wall times of `mcpo --help` and of the plain app's, alternating; the first of each warms the disk."""
    plain = folder / "plain.py"
    plain.write_text(PLAIN_APP, encoding="utf-8")
    mcpo = Path(sys.executable).with_name("mcpo")
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for script, found in zip((mcpo, plain), times, strict=True):
            start = time.perf_counter()
            subprocess.run([sys.executable, script, "--help"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
            found.append(time.perf_counter() - start)
    return times[0][1:], times[1][1:]


def worker_seconds(repeats: int) -> float:
    """CPU seconds that a worker of the local engine spends before it trains; the median."""
    imports = ("-c", "import mcpo_cli.scheduling.worker, mcpo_cli.backends.local.train")
    return statistics.median(growth.timed(os.environ, *imports).cpu_seconds for _ in range(repeats))


def forked_worker_seconds(repeats: int) -> float:
    """Seconds in which a fork server that has loaded the local engine starts a worker; the median."""
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(ForkServer("mcpo_cli.backends.local.train", {"MCPO_HOME": folder})) as server,
    ):
        # The first worker waits for the server's imports.
        for _ in range(repeats + 1):
            start = time.perf_counter()
            worker = server.start("none", Path(folder, "log"))
            while not worker.pid:
                server.follow()
            found.append(time.perf_counter() - start)
            while worker.poll() is None:
                time.sleep(POLL_SECONDS)
    return statistics.median(found[1:])
