"""The measures: numbers and tables that are computed from a run's records. `mcpo probe` shows them.

Metrics, in contrast, are written while a run trains (`backends/measure.py`).
"""

from functools import cache

from mcpo_cli import plugins
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.measures.base import Finding, Measure
from mcpo_cli.plugins import Found

__all__ = ["Finding", "Measure", "get", "registry"]


@cache
def registry() -> Found[Measure]:
    """All measures by name, from this package and plug-ins. Raises ConfigError when two share a name."""
    return plugins.objects("probes", [__name__], "MEASURE", Measure)


def get(name: str) -> Measure:
    """The measure `name`.

    Raises:
        ConfigError: unknown measure.
    """
    if name not in registry():
        raise ConfigError(
            f"unknown probe '{name}': {nearest(name, registry())}",
            fix=mend("mcpo probe {}", name, registry(), "mcpo components list probe"),
            code="unknown_name",
        )
    return registry()[name]
