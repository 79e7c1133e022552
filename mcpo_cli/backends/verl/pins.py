"""The package versions that verl 0.9.1 requires (its `Requires-Dist`), and the installed ones."""

from importlib import metadata

from packaging.specifiers import SpecifierSet

VERL = "0.9.1"
CORE = {
    "verl": f"=={VERL}",
    "torch": ">=2.9",
    "transformers": ">=5.5.3,!=5.6.0,<5.11",
    "tensordict": ">=0.8.0,!=0.9.0,<=0.10.0",
    "TransferQueue": ">=0.1.10",
    "ray": ">=2.41.0",
    "numpy": ">=2.0.0",
}
"""Required on every machine."""
GPU = {"torch": "==2.11.0", "vllm": "==0.24.0", "flash-attn": ">=2.8.3,<2.9"}
"""Required on GPUs: the pins of verl's extras `vllm` and `fsdp`, for CUDA 13.0. verl pins flash-attn to 2.8.3, which
looks for a wheel for CUDA 12; 2.8.3.post2 looks for one for CUDA 13."""
SETUP = "make setup-gpu  (in a checkout; docs/gpu.md has the commands without make)"
"""Installs all of these, those for GPUs included."""


def installed(package: str) -> str | None:
    """The installed version of `package`, None if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def fits(version: str, wanted: str) -> bool:
    """Whether `version` is in the range `wanted`; local build labels (`+cu130`) are ignored."""
    return SpecifierSet(wanted, prereleases=True).contains(version.partition("+")[0])
