"""Records the origin of a result: code, command, packages and machine, without secrets."""

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from mcpo_cli import __version__, plugins
from mcpo_cli.redaction import masked, redact
from mcpo_cli.runs.journal import Journal, read_json, write_atomic, write_json

RECORD = "provenance.json"
DISTRIBUTION = "mcpo-cli"
SOURCE = Path(__file__).resolve().parent.parent.parent
CODE = ("mcpo_cli", "analysis")
"""Folders of a checkout whose files decide what is computed."""
VECTOR = re.compile(r"sse|ssse|avx|fma|amx|asimd|sve")
"""Flags of /proc/cpuinfo that name vector instructions, on x86 and ARM."""
TYPES: dict[str, Any] = {
    **dict.fromkeys(("mcpo", "commit", "package", "python", "diff_sha256"), str),
    "dirty": bool,
    "packages": dict,
    "machine": dict,
}
"""The parts of a record that are read again, and their types."""
MACHINE: dict[str, Any] = {"processor": str, "kernels": str, "cores": int, "memory_gib": int | float, "gpus": list}
"""The parts of `machine` and their types."""
ENVIRONMENT = (
    "MCPO_HOME",
    "MCPO_PLUGINS",
    "MLFLOW_TRACKING_URI",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "ATEN_CPU_CAPABILITY",
)


def write(attempt_dir: Path, command: Sequence[str]) -> None:
    """Write provenance.json, and code.diff if the code differs from its commit.

    command: the command that the user typed, see `parent_command`.
    """
    code = code_state()
    diff = code.pop("diff")
    if diff:
        write_atomic(attempt_dir / "code.diff", diff)
    record = {
        "mcpo": __version__,
        **code,
        "command": [redact(word) for word in command],
        "environment": {name: redact(os.environ[name]) for name in ENVIRONMENT if name in os.environ},
        "plugins": [asdict(plugin) for plugin in plugins.present()],
        "packages": dict(sorted((d.name, d.version) for d in importlib.metadata.distributions())),
        "python": platform.python_version(),
        "machine": machine(),
    }
    write_json(attempt_dir / RECORD, record)


def read(attempt_dir: Path) -> dict[str, Any]:
    """The record of an attempt; empty without one.

    It may come from somebody else, and a bundle's checksum does not vouch for its content: parts that do not have the
    types of `write` are left out.
    """
    path = attempt_dir / RECORD
    if not path.exists():
        return {}
    record = _typed(read_json(path), TYPES)
    packages = record.get("packages", {})
    record["packages"] = _typed(packages, dict.fromkeys(packages, str))
    record["machine"] = _typed(record.get("machine", {}), MACHINE)
    return record


def _typed(values: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in types and isinstance(value, types[name])}


def machine() -> dict[str, Any]:
    """This machine, in the form of a record."""
    return {
        "platform": platform.platform(),
        "processor": processor(),
        "instructions": instructions(),
        "kernels": _kernels(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": _gpus(),
    }


def rounding(record: Mapping[str, Any]) -> dict[str, str]:
    """The causes of rounding in a run's numbers on a CPU: torch, the CPU and the kernels chosen for it."""
    machine = record.get("machine", {})
    torch = record.get("packages", {}).get("torch", "unknown")
    return {"torch": torch, **{name: str(machine.get(name, "unknown")) for name in ("processor", "kernels")}}


def here() -> dict[str, Any]:
    """The parts of a record that `rounding` reads, for this process."""
    return {"packages": {"torch": importlib.metadata.version("torch")}, "machine": machine()}


def environment(record: Mapping[str, Any]) -> dict[str, str]:
    """Everything known that can change a run's numbers: commit, torch, Python and CPU."""
    versions = {
        "commit": code_name(record),
        "torch": record.get("packages", {}).get("torch"),
        "Python": record.get("python"),
        "processor": record.get("machine", {}).get("processor"),
    }
    return {name: value for name, value in versions.items() if value}


def changes(run_dir: Path) -> list[str]:
    """Changes of the environment between the last two attempts, one line each."""
    records = [record for attempt in Journal(run_dir).attempts() if (record := read(attempt))]
    if len(records) < 2:
        return []
    before, after = (environment(record) for record in records[-2:])
    return [
        f"continues under {name} {value}, begun under {before[name]}: its numbers may differ in the last digits from "
        "those of an undisturbed run"
        for name, value in after.items()
        if before.get(name, value) != value
    ]


def parent_command() -> list[str]:
    """The parent process's command: for a worker, the command that the user typed."""
    try:
        return list(psutil.Process(os.getppid()).cmdline())
    except psutil.Error:
        return sys.argv


def code_state() -> dict[str, Any]:
    """The commit and the working tree's difference from it; for an installed wheel, its `package` instead."""
    # A wheel installed inside another project's checkout must not report that project's commit.
    if not (SOURCE / "pyproject.toml").exists() or _git("rev-parse", "--show-toplevel").strip() != str(SOURCE):
        no_commit: dict[str, Any] = {"commit": None, "dirty": None, "untracked": [], "diff": "", "diff_sha256": None}
        return {**no_commit, "package": _package()}
    diff = masked(_git("diff", "HEAD"))
    # Only code: data, suites and results of a user may lie anywhere in a checkout.
    untracked = _git("ls-files", "--others", "--exclude-standard", "--", *CODE).splitlines()
    return {
        "commit": _git("rev-parse", "HEAD").strip() or None,
        "dirty": bool(diff or untracked),
        "untracked": untracked,
        "diff": diff,
        "diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if diff else None,
        "package": None,
    }


def code_name(record: Mapping[str, Any]) -> str:
    """The first 12 digits of a record's commit, or the package that was installed; empty if neither was recorded."""
    return (record.get("commit") or "")[:12] or record.get("package") or ""


def _package() -> str | None:
    """Version and 12 hex digits over the files of the installed wheel, `0.1.0+3f0c...`; None if it lists none."""
    try:
        listed = importlib.metadata.distribution(DISTRIBUTION).read_text("RECORD") or ""
    except importlib.metadata.PackageNotFoundError:
        return None
    # The installer wrote the other lines.
    files = sorted(line for line in listed.splitlines() if line.startswith("mcpo_cli/") and "__pycache__" not in line)
    return f"{__version__}+{hashlib.sha256(chr(10).join(files).encode()).hexdigest()[:12]}" if files else None


def _git(*arguments: str) -> str:
    try:
        # A difference has the bytes of the files, which may be in any encoding.
        process = subprocess.run(
            ["git", "-C", str(SOURCE), *arguments], capture_output=True, encoding="utf-8", errors="replace", check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return process.stdout


def processor() -> str:
    """The CPU's model name."""
    return _cpuinfo("model name") or platform.processor()


def instructions() -> list[str]:
    """The CPU's vector instructions: libraries choose kernels by them, and kernels round differently."""
    return sorted(flag for flag in (_cpuinfo("flags") or _cpuinfo("Features")).split() if VECTOR.match(flag))


def _cpuinfo(key: str) -> str:
    """A field of the first CPU in /proc/cpuinfo; empty without it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in fields if name.strip() == key), "")


def _kernels() -> str:
    """The instruction set that torch chose its kernels for, such as `AVX2`."""
    import torch  # the process that writes provenance computes with it afterwards

    return torch.backends.cpu.get_cpu_capability()


def _gpus() -> list[str]:
    """Names of the CUDA devices. torch is imported only if a driver is present."""
    if not Path("/proc/driver/nvidia").exists():
        return []
    import torch

    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
