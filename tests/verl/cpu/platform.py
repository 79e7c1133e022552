"""A platform of verl whose device is the CPU."""

import contextlib
import resource
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class Memory(ModuleType):
    """The functions that verl needs in `torch.<device>` and that `torch.cpu` lacks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    @staticmethod
    def get_device_name(_device: Any = None) -> str:
        """The name under which verl looks up peak FLOP/s; it has no entry for it."""
        return "CPU"

    @staticmethod
    def max_memory_allocated(_device: Any = None) -> int:
        """Peak bytes of this process; Linux counts in KiB."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    max_memory_reserved = memory_allocated = memory_reserved = max_memory_allocated

    @staticmethod
    def mem_get_info(_device: Any = None) -> tuple[int, int]:
        """Free and total bytes, for verl's log lines."""
        return 0, 1

    @staticmethod
    def empty_cache() -> None:
        """Do nothing: there is no cache."""

    @staticmethod
    def ipc_collect() -> None:
        """Do nothing: no memory is shared between processes."""

    @staticmethod
    def manual_seed(seed: int) -> None:
        """Seed torch's default generator, which is the CPU's."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    @staticmethod
    def get_rng_state() -> torch.Tensor:
        """See `torch.get_rng_state`."""
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor) -> None:
        """See `torch.set_rng_state`."""
        torch.set_rng_state(state)


class PlatformCPU(PlatformBase):
    """See `PlatformBase`, which documents every member."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = Memory("cpu")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"  # verl passes it on to `Tensor.to`

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"  # Ray is told of as many as there are ranks

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def register() -> None:
    """Register it as `VERL_PLATFORM=cpu`."""
    PlatformRegistry.register(platform="cpu")(PlatformCPU)
