"""The list of artifacts: modules and plug-ins declare them, or they are tables of suites that nobody declares."""

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
    artifacts = plugins.objects("artifacts", (), "ARTIFACT", Artifact)
    for name, artifact in list(artifacts.items()):
        if unknown_suites := set(artifact.needs) - plan.suites().keys():
            plugins.warn(
                f"artifact '{name}' needs suites that do not exist: {', '.join(sorted(unknown_suites))}; it is left out"
            )
            del artifacts[name]
            artifacts.plugins.pop(name, None)
    return artifacts


@cache
def registry() -> Found[Artifact]:
    """All artifacts by name. Raises ConfigError when two share a name."""
    result = Found[Artifact]()
    # A declared table replaces the usual one of its suite.
    artifacts = {**user_artifacts.artifacts(), **declared()}
    sections = in_report_order(artifact.section for artifact in (*declared().values(), *artifacts.values()))
    result.update(sorted(artifacts.items(), key=partial(_place_in_report, sections)))
    result.plugins.update(declared().plugins)
    return result


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
    artifacts = registry()
    suite_artifacts = [name for name, artifact in artifacts.items() if wanted in artifact.needs]
    if wanted in user_artifacts.suites() and suite_artifacts:
        return suite_artifacts
    if wanted in artifacts or presets.is_file(wanted):
        return [wanted]
    if wanted == ALL:
        return [name for name, artifact in artifacts.items() if artifact.section != DIAGNOSTICS]
    if wanted == "figures":
        return [name for name in names(ALL) if ".figures." in artifacts[name].build.__module__]
    if parts := [name for name in artifacts if name[:-1] == wanted and name.startswith("fig")]:
        return parts
    if wanted in plan.suites():
        return suite_artifacts or [wanted]
    choices = [*artifacts, *plan.suites(), ALL, "figures"]
    fix = mend("mcpo reproduce {}", wanted, choices, "mcpo components list artifact")
    raise ConfigError(f"unknown artifact '{wanted}': {nearest(wanted, choices)}", fix=fix, code="unknown_name")


def get(name: str) -> Artifact:
    """The artifact `name`, which `names` has returned.

    Raises:
        ConfigError: `name` is a file that cannot be read.
    """
    return registry()[name] if name in registry() else user_artifacts.of(name)


def suites(chosen: Sequence[str]) -> list[str]:
    """The suites whose runs the artifacts `chosen` need."""
    return list(dict.fromkeys(suite for name in chosen for suite in get(name).needs))
