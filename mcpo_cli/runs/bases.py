"""Where base policies are: in the cache of a home, and those that come with mcpo."""

from pathlib import Path

from mcpo_cli.config.load import EXPERIMENTS
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.folders import MANIFEST


def cached(home: Path, spec: RunSpec) -> Path:
    """The folder of the base policy of `spec` below `home`, whether it exists or not."""
    return home / "cache" / "base" / spec.base_id


def shipped(spec: RunSpec) -> Path | None:
    """The folder of the base policy of `spec` that comes with mcpo; None if none does, or `shipped_base` is off."""
    folder = EXPERIMENTS / "base" / spec.base_id
    return folder if spec.compute.shipped_base and (folder / MANIFEST).exists() else None


def at_hand(home: Path, spec: RunSpec) -> bool:
    """Whether a run of `spec` below `home` needs no warm-up."""
    return (cached(home, spec) / MANIFEST).exists() or shipped(spec) is not None
