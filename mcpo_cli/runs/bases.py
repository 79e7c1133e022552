"""Base policies on the disk: a home has made them, or they come with mcpo."""

from pathlib import Path

from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.folders import MANIFEST

SHIPPED = Path(__file__).resolve().parents[1] / "base_policies"
"""Base policies that come with mcpo."""


def cached_base(home: Path, spec: RunSpec) -> Path:
    """The folder of the base policy of `spec` below `home`, whether it exists or not."""
    return home / "cache" / "base" / spec.base_id


def shipped_base(spec: RunSpec) -> Path | None:
    """The folder of the shipped base policy of `spec`; None if mcpo has none, or `shipped_base` is off."""
    folder = SHIPPED / spec.base_id
    return folder if spec.compute.shipped_base and (folder / MANIFEST).exists() else None


def makes_base(home: Path, spec: RunSpec, counted: set[str]) -> bool:
    """True if a run of `spec` below `home` needs a warm-up; only the first run that asks for a policy makes it.

    counted: ids of the base policies asked for so far; the id of `spec` is added.
    """
    if spec.base_id in counted:
        return False
    counted.add(spec.base_id)
    return not (cached_base(home, spec) / MANIFEST).exists() and not shipped_base(spec)
