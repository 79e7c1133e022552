"""Which artifacts there are: those that modules and plug-ins declare, and the tables of suites that nobody declares."""

from collections.abc import Sequence
from functools import cache, partial

from mcpo_cli import plugins
from mcpo_cli.config import plan, presets
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.plugins import Found
from mcpo_cli.render.product import DIAGNOSTICS, Artifact, in_report_order
from mcpo_cli.report import user_artifacts

ALL = "all"


@cache
def declared() -> Found[Artifact]:
    """The `ARTIFACT` of each module, and of plug-ins, by name. Raises ConfigError when two share a name."""
    usable = plugins.objects("artifacts", (), "ARTIFACT", Artifact)
    for name, artifact in list(usable.items()):
        if unknown := set(artifact.needs) - plan.suites().keys():
            plugins.warn(
                f"artifact '{name}' needs suites that do not exist: {', '.join(sorted(unknown))}; it is left out"
            )
            del usable[name]
            usable.plugins.pop(name, None)
    return usable


@cache
def registry() -> Found[Artifact]:
    """All artifacts by name. Raises ConfigError when two share a name."""
    ordered = Found[Artifact]()
    # A declared table replaces the usual one of its suite.
    known = {**user_artifacts.artifacts(), **declared()}
    sections = in_report_order(artifact.section for artifact in (*declared().values(), *known.values()))
    ordered.update(sorted(known.items(), key=partial(_place_in_report, sections)))
    ordered.plugins.update(declared().plugins)
    return ordered


def _place_in_report(sections: Sequence[str], item: tuple[str, Artifact]) -> tuple[int, bool, str]:
    """Sort key: section, then tables before figures, then name."""
    name, artifact = item
    return sections.index(artifact.section), ".figures." in artifact.build.__module__, name


def names(wanted: str) -> list[str]:
    """Names of the artifacts that `wanted` selects: one name, a figure with its parts (`fig2`), `figures`, or `all`.

    `all` leaves out diagnostics. A suite selects the artifacts made from its runs; the file of a suite or
    of claims selects its table.

    Raises:
        ConfigError: `wanted` selects nothing.
    """
    known = registry()
    of_suite = [name for name, artifact in known.items() if wanted in artifact.needs]
    if wanted in user_artifacts.suites() and of_suite:
        return of_suite
    if wanted in known or presets.is_file(wanted):
        return [wanted]
    if wanted == ALL:
        return [name for name, artifact in known.items() if artifact.section != DIAGNOSTICS]
    if wanted == "figures":
        return [name for name in names(ALL) if ".figures." in known[name].build.__module__]
    if parts := [name for name in known if name[:-1] == wanted and name.startswith("fig")]:
        return parts
    if wanted in plan.suites():
        return of_suite or [wanted]
    choices = [*known, *plan.suites(), ALL, "figures"]
    fix = mend("mcpo reproduce {}", wanted, choices, "mcpo components list artifact")
    raise ConfigError(f"unknown artifact '{wanted}': {nearest(wanted, choices)}", fix=fix, code="unknown_name")


def get(name: str) -> Artifact:
    """The artifact `name`, one of those that `names` returns.

    Raises:
        ConfigError: `name` is a file that cannot be read.
    """
    return registry()[name] if name in registry() else user_artifacts.of(name)


def suites(chosen: Sequence[str]) -> list[str]:
    """The suites whose runs the artifacts `chosen` need."""
    return list(dict.fromkeys(suite for name in chosen for suite in get(name).needs))
