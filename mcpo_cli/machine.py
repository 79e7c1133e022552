"""The machine's GPUs and cores, read without importing a GPU library, and the process's garbage collector."""

import csv
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loky import ProcessPoolExecutor

MIB, GIB = 2**20, 2**30
LINUX = sys.platform == "linux"
"""Elsewhere (macOS) the system caps no process's memory, and a process that has loaded torch must not fork."""


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine."""

    name: str
    memory: int
    """Total bytes."""
    free: int
    """Bytes that are currently free."""


def gpus() -> list[Gpu]:
    """The NVIDIA GPUs that a new process may use: all, or the GPUs in CUDA_VISIBLE_DEVICES."""
    rows = _ask_driver("index,uuid,name,memory.total,memory.free")
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is not None:
        devices = [word.strip() for word in setting.split(",")]
        rows = [row for row in rows if row[0] in devices or any(word and row[1].startswith(word) for word in devices)]
    return [Gpu(name, _size(memory, "total"), _size(free, "available")) for _, _, name, memory, free in rows]


def _size(mebibytes: str, of_machine: str) -> int:
    """A size in bytes; a GPU without memory of its own, for which the driver says `[N/A]`, has the machine's."""
    if mebibytes.isdecimal():
        return int(mebibytes) * MIB
    import psutil  # not imported above: graders need none of it

    return int(getattr(psutil.virtual_memory(), of_machine))


def driver() -> str | None:
    """The version of the NVIDIA driver; None without a driver, or if it finds no GPU."""
    return next((version for (version,) in _ask_driver("driver_version")), None)


def _ask_driver(columns: str) -> list[list[str]]:
    """The values of these columns for each GPU; empty without a driver."""
    command = ["nvidia-smi", f"--query-gpu={columns}", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    return list(csv.reader(process.stdout.splitlines(), skipinitialspace=True))


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def helpers(number: int) -> "ProcessPoolExecutor":
    """A context manager with helper processes; they exit with this process, even if it is killed.

    loky can send what `pickle` cannot, such as the functions in a figure, and does not import `__main__`.
    """
    from loky import ProcessPoolExecutor

    return ProcessPoolExecutor(number, initializer=_end_with, initargs=(os.getpid(),))


def _end_with(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def freeze_gc() -> Iterator[None]:
    """Exclude the objects that the block creates from garbage collection: imported libraries, data that are read once.

    Otherwise the collector searches a million lasting objects again and again without effect.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def gigabytes(size: float) -> str:
    """A number of bytes for readers."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
