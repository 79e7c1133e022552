"""The probes. They compute measures of forgetting, drift and weight allocation from a run's records."""

from functools import cache

from mcpo_cli import plugins
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.measures.base import Finding, Probe
from mcpo_cli.plugins import Found

__all__ = ["Finding", "Probe", "get", "registry"]


@cache
def registry() -> Found[Probe]:
    """All probes by name, from this package and plug-ins. Raises ConfigError when two share a name."""
    return plugins.objects("probes", [__name__], "PROBE", Probe)


def get(name: str) -> Probe:
    """The probe `name`.

    Raises:
        ConfigError: unknown probe.
    """
    if name not in registry():
        raise ConfigError(
            f"unknown probe '{name}': {nearest(name, registry())}",
            fix=mend("mcpo probe {}", name, registry(), "mcpo components list probe"),
        )
    return registry()[name]
