"""Artifacts that no module declares: the table of a plug-in's suite, the verdicts on a plug-in's claims."""

from functools import cache

from mcpo_cli import paths, plugins
from mcpo_cli.config import plan, presets
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.errors import ConfigError
from mcpo_cli.render.product import Artifact
from mcpo_cli.report.claims_table import claims_table
from mcpo_cli.report.comparison import comparison

SWEPT = {"model", "base_seed", "seed"}
"""Settings that a table may vary."""


@cache
def suites() -> list[str]:
    """The suites of plug-ins."""
    roots = plugins.own_roots()
    return [name for name, path in plan.suites().items() if not any(map(path.is_relative_to, roots))]


def artifacts() -> dict[str, Artifact]:
    """The artifacts of all suites and claims of plug-ins, by name.

    A suite that sweeps more than models and seeds has no table.
    """
    by_name: dict[str, Artifact] = {}
    for name, path in [*((name, plan.suites()[name]) for name in suites()), *presets.files("claims/*.yaml").items()]:
        try:
            suite = None if path.parent.name == "claims" else plan.read(name)
            if suite is None or suite.sweep.keys() <= SWEPT:
                if name in by_name:
                    raise plugins.taken(f"artifact '{name}'", by_name[name].source or "", path)
                by_name[name] = of(name if suite else str(path))
        except ConfigError as error:
            plugins.warn(f"{error.message}; it is left out")
    return by_name


def of(name: str) -> Artifact:
    """The table of the suite `name`, which may also be a file of a suite or of claims.

    Raises:
        ConfigError: it cannot be read.
    """
    if presets.is_file(name) and "claims" in read_yaml(paths.named(name)):
        return claims_table(paths.named(name))
    return comparison(name)
