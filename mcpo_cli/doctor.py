"""Checks whether this machine has what mcpo needs, with the command that fixes each gap. Writes nothing."""

import importlib
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import psutil
from packaging.requirements import Requirement

from mcpo_cli import extras, machine, plugins
from mcpo_cli.backends.verl import checks
from mcpo_cli.components import KINDS
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location
from mcpo_cli.machine import GIB
from mcpo_cli.plugins import Found, Plugin
from mcpo_cli.redaction import redact
from mcpo_cli.trackers import OFFLINE

DISTRIBUTION = "mcpo-cli"
LEAST_DISK = LEAST_MEMORY = 2 * GIB
"""Least free bytes for the local engine and its journals."""
LEAST_SHARED = GIB
"""Least bytes of shared memory, where Ray keeps objects; containers have 64 MiB by default."""
LEAST_FILES, LEAST_PROCESSES = 65536, 4096
"""Least limits: open files as Ray recommends, processes as Ray's and vLLM's workers use with eight GPUs."""
HUB_SECONDS = 5.0
DRIVER, CUDA = ">=580", "==13.*"
"""NVIDIA driver and CUDA that verl's pins need: their torch and vLLM are built for CUDA 13, which no older driver runs
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1)."""
UPDATE_DRIVER = "apt-get install nvidia-driver-580-server  (CUDA 13 needs 580 or newer; on the host of a container)"
CLUSTER = "an NVIDIA GPU with its driver, or those of a cluster: cluster.launcher=slurm, cluster.ray_address=HOST:PORT"
ASK_DRIVER = "nvidia-smi  (shows what the driver says of the GPUs)"
REBUILD_KERNELS = (
    "pip install --force-reinstall --no-deps --require-hashes --no-build-isolation --no-cache-dir "
    "--requirement constraints-flash-attn.txt  (in a checkout)"
)

REINSTALL = "make setup in a checkout, or reinstall the wheel"
OTHER_NAMES = f"mcpo-lab, or {sys.executable} -m mcpo_cli: the same program"

TRAINED_WITH = ("method", "sampler", "task")
"""Kinds of components whose registries every run needs."""
State = Literal["ok", "missing", "wrong"]
User = Literal["local", "extra", "shell", "verl", "hub", "plug-in"]


@dataclass(frozen=True)
class Line:
    """The result of one check."""

    name: str
    needed_by: User
    """`local` is needed for everything, each other word only for its feature. shell: to type `mcpo`."""
    state: State
    found: str
    fix: str = ""


def examine() -> list[Line]:
    """All checks, in the order in which to fix them."""
    gpus = machine.gpus()
    of_verl = (*_gpus(gpus), *_stack(gpus))
    return [*_python(), *_command(), *of_verl, *_home(), *_hub(), *_memory(), *_limits(), *_plugins()]


def _python() -> Iterator[Line]:
    """Check Python and mcpo's requirements against the installed versions."""
    bounds = str(metadata.metadata(DISTRIBUTION)["Requires-Python"])
    yield _held("Python", "local", platform.python_version(), bounds, "make setup PYTHON=python3.12")
    needs = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or []]
    base, command = [requirement for requirement in needs if requirement.marker is None], extras.command("train")
    ranges = {requirement.name: str(requirement.specifier) for requirement in [*base, *_of_extra(needs, "train")]}
    for name in ("torch", "transformers"):
        version = checks.installed(name)
        yield _held(name, "local", version, ranges.pop(name), REINSTALL if version else command)
    lines = [_held(name, "local", checks.installed(name), bounds, "") for name, bounds in ranges.items()]
    if bad := [line for line in lines if line.state != "ok"]:
        text = ", ".join(f"{line.name} {line.found}" for line in bad)
        yield Line("other packages", "local", bad[0].state, text, command if bad[0].state == "missing" else REINSTALL)
    else:
        yield Line("other packages", "local", "ok", f"{len(lines)}, all in range")
    for extra in dict.fromkeys(extra for extra in extras.EXTRAS.values() if extra != "train"):
        for requirement in _of_extra(needs, extra):
            name, bounds = requirement.name, str(requirement.specifier)
            yield _held(name, "extra", checks.installed(name), bounds, extras.command(extra))


def _of_extra(needs: Sequence[Requirement], extra: str) -> list[Requirement]:
    """The requirements that an extra of mcpo adds."""
    return [
        requirement for requirement in needs if requirement.marker and requirement.marker.evaluate({"extra": extra})
    ]


def _command() -> Iterator[Line]:
    """Check that `mcpo` in the shell is this program: another package on PyPI also has a command of that name."""
    program = shutil.which("mcpo")
    if program is None:
        yield Line("command mcpo", "shell", "missing", "not on PATH", OTHER_NAMES)
        return
    is_ours = b"mcpo_cli" in Path(program).read_bytes()
    yield _line("command mcpo", "shell", is_ours, program if is_ours else f"{program} is another program", OTHER_NAMES)


def _gpus(gpus: list[machine.Gpu]) -> Iterator[Line]:
    """Check GPUs, their driver and the packages built for them; one line on a machine without GPUs."""
    if not gpus:
        message = "none (nvidia-smi finds none, or CUDA_VISIBLE_DEVICES hides them); the local engine needs none"
        yield Line("GPUs", "verl", "missing", message, CLUSTER)
        return
    names = ", ".join(f"{gpu.name} ({gpu.free / GIB:.0f} of {gpu.memory / GIB:.0f} GiB free)" for gpu in gpus)
    yield Line("GPUs", "verl", "ok", f"{len(gpus)}: {names}")
    yield _held("driver", "verl", machine.driver(), DRIVER, UPDATE_DRIVER)
    if checks.installed("torch") is not None:
        yield from _torch()
        yield from _kernels()


def _torch() -> Iterator[Line]:
    """Check CUDA and NCCL of torch, and whether it can use the GPUs."""
    import torch

    version = torch.version.cuda
    if version is None:
        yield Line("CUDA", "verl", "missing", f"torch {torch.__version__} is built without CUDA", checks.SETUP)
        return
    cuda = _held("CUDA", "verl", version, CUDA, checks.SETUP)
    try:
        torch.cuda.init()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        cuda = Line("CUDA", "verl", "wrong", f"{version}; torch cannot use the GPUs: {reason}", cuda.fix or ASK_DRIVER)
    yield cuda
    if torch.distributed.is_nccl_available():
        yield Line("NCCL", "verl", "ok", ".".join(map(str, torch.cuda.nccl.version())))
    else:
        yield Line("NCCL", "verl", "missing", f"torch {torch.__version__} is built without NCCL", checks.SETUP)


def _kernels() -> Iterator[Line]:
    """Check whether flash-attn, where it is installed, was built for the torch that is installed."""
    if checks.installed("flash-attn") is None:
        return
    name, torch = "flash-attn kernels", f"torch {checks.installed('torch')}"
    try:
        importlib.import_module("flash_attn")
    except ModuleNotFoundError as error:
        fix = REBUILD_KERNELS if error.name == "flash_attn_2_cuda" else checks.SETUP
        yield Line(name, "verl", "wrong", f"cannot be imported: {error}", fix)
    except ImportError as error:
        yield Line(name, "verl", "wrong", f"not built for {torch}: {error}", REBUILD_KERNELS)
    else:
        yield Line(name, "verl", "ok", f"can be imported with {torch}")


def _stack(gpus: list[machine.Gpu]) -> Iterator[Line]:
    """Check verl and its dependencies; its pins for GPUs apply only to machines with GPUs."""
    for package, versions in {**checks.CORE, **(checks.GPU if gpus else {})}.items():
        if gpus or package != "torch":  # `_python` has checked torch for machines without GPUs
            yield _held(package, "verl", checks.installed(package), versions, checks.SETUP)


def _home() -> Iterator[Line]:
    """Check MCPO_HOME and its contents."""
    try:
        home = location()
    except ConfigError as error:
        yield Line("MCPO_HOME", "local", "wrong", error.message, error.fix or "")
        return
    yield from _store(home)
    yield from _folder(home)


def _store(home: Path) -> Iterator[Line]:
    """Check the MLflow store that runs would be written to; creates no database."""
    setting = os.environ.get("MLFLOW_TRACKING_URI", "")
    database = home / "mlflow.db"
    if not setting and extras.is_installed("mlflow") and not database.exists():
        yield Line("MLflow store", "local", "ok", f"{database} (the first run will create it)")
        return
    if setting == OFFLINE or not extras.is_installed("mlflow"):
        yield Line("MLflow store", "local", "ok", "none: journals only")
        return
    from mcpo_cli.trackers.connection import Connection

    try:
        connection = Connection(setting or f"sqlite:///{database}")
        connection.check()
    except ConfigError as error:
        yield Line("MLflow store", "local", "wrong", error.message, error.fix or "")
    else:
        yield Line("MLflow store", "local", "ok", connection.shown)


def _hub() -> Iterator[Line]:
    if not extras.is_installed("huggingface_hub"):
        return
    import httpx
    from huggingface_hub import constants

    fix = (
        "model=./FOLDER data=./FILE  (your copies), task.data_path=FOLDER  (copies of data sets), or HF_ENDPOINT=MIRROR"
    )
    if constants.HF_HUB_OFFLINE:
        yield Line("hub", "hub", "missing", "disabled by HF_HUB_OFFLINE; cached files can be used", fix)
        return
    try:
        code = httpx.head(constants.ENDPOINT, timeout=HUB_SECONDS, follow_redirects=True).status_code
    except (httpx.HTTPError, httpx.InvalidURL, ImportError) as error:  # a proxy may need a package that is missing
        yield Line("hub", "hub", "missing", redact(f"{constants.ENDPOINT}: {error or type(error).__name__}"), fix)
        return
    status = redact(f"{constants.ENDPOINT} answers {code}")
    yield _line("hub", "hub", code < httpx.codes.INTERNAL_SERVER_ERROR, status, fix)


def _folder(home: Path) -> Iterator[Line]:
    folder = next(path for path in (home, *home.parents) if path.exists())
    writable = folder.is_dir() and os.access(folder, os.W_OK)
    yield _line("MCPO_HOME", "local", writable, f"{home}{'' if writable else ' cannot be written'}", "MCPO_HOME=FOLDER")
    yield _room("disk", "local", shutil.disk_usage(folder).free, LEAST_DISK, "MCPO_HOME=FOLDER on a larger disk")


def _memory() -> Iterator[Line]:
    yield _room("memory", "local", psutil.virtual_memory().available, LEAST_MEMORY, "end other programs")
    if (shared_folder := Path("/dev/shm")).exists():
        total = shutil.disk_usage(shared_folder).total
        yield _room("shared memory", "verl", total, LEAST_SHARED, "docker run --shm-size=16g ...")


def _limits() -> Iterator[Line]:
    yield Line("cores", "local", "ok", str(machine.cores()))
    for name, kind, floor, letter in (
        ("open files", resource.RLIMIT_NOFILE, LEAST_FILES, "n"),
        ("processes", resource.RLIMIT_NPROC, LEAST_PROCESSES, "u"),
    ):
        soft, _ = resource.getrlimit(kind)
        unlimited = soft == resource.RLIM_INFINITY
        limit = "unlimited" if unlimited else f"{soft}; wanted: {floor}"
        yield _line(f"limit of {name}", "verl", unlimited or soft >= floor, limit, f"ulimit -{letter} {floor}")


def _plugins() -> Iterator[Line]:
    """Plug-ins, what they provide, and their errors."""
    names_of: dict[Plugin, list[str]] = {plugin: [] for plugin in plugins.present()}
    for kind, entry in KINDS.items():
        try:
            registry = entry.registry()
        except ConfigError as error:
            user: User = "local" if kind in TRAINED_WITH else "plug-in"
            yield Line(f"{kind}s", user, "wrong", error.message, error.fix or "")
        else:
            for name, plugin in (registry.plugins if isinstance(registry, Found) else {}).items():
                names_of[plugin].append(f"{kind} {name}")
    for plugin, names in names_of.items():
        is_void = plugin.name.endswith(".py") and not names
        description = ", ".join([*(["declares nothing"] if is_void else names), f"sha256 {plugin.sha256[:12]}"])
        fix = "give its class a name, or its object the name that docs/plug-ins.md lists" if is_void else ""
        yield Line(f"{plugin.name} {plugin.version}".strip(), "plug-in", "wrong" if is_void else "ok", description, fix)
    yield from (Line("plug-in", "plug-in", "wrong", problem) for problem in plugins.problems())


def _held(name: str, needed_by: User, version: str | None, bounds: str, fix: str) -> Line:
    """Check an installed version against the range `bounds`."""
    if version is None:
        return Line(name, needed_by, "missing", f"not installed; wanted: {bounds or 'any'}", fix)
    fits = checks.fits(version, bounds)
    return _line(name, needed_by, fits, version if fits else f"{version}; wanted: {bounds}", fix)


def _room(name: str, needed_by: User, size: int, floor: int, fix: str) -> Line:
    """Check that there are at least `floor` bytes."""
    remark = "" if size >= floor else f"; wanted: at least {floor / GIB:.0f} GiB"
    return _line(name, needed_by, size >= floor, f"{size / GIB:.1f} GiB{remark}", fix)


def _line(name: str, needed_by: User, is_right: bool, description: str, fix: str) -> Line:
    """The line of something that exists; `fix` is shown if it is not right."""
    return Line(name, needed_by, "ok", description) if is_right else Line(name, needed_by, "wrong", description, fix)
