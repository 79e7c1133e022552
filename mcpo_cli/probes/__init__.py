"""Probes: what the records of a run say about forgetting, drift and weight allocation: one file each."""

from functools import cache

from mcpo_cli.errors import ConfigError, closest, nearest
from mcpo_cli.probes.base import Finding, Probe
from mcpo_cli.scan import declared

__all__ = ["Finding", "Probe", "get", "registry"]


@cache
def registry() -> dict[str, Probe]:
    """All probes by name: the `PROBE` of each module. Raises TypeError when two share a name."""
    return declared("mcpo_cli.probes", "PROBE", "probe")


def get(name: str) -> Probe:
    """The probe `name`.

    Raises:
        ConfigError: there is none.
    """
    if name not in registry():
        raise ConfigError(
            f"unknown probe '{name}': {nearest(name, registry())}", fix=f"mcpo probe {closest(name, registry())}"
        )
    return registry()[name]
