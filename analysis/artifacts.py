"""Tables (and, later, figures): one file each, found by scanning their package."""

from functools import cache
from pathlib import Path
from typing import Any, Protocol

from mcpo_cli.errors import ConfigError, closest, nearest
from mcpo_cli.plan import Plan
from mcpo_cli.scan import declared


class Built(Protocol):
    """An artifact that was built: what is on the disk, and the same for a terminal or a program."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that were written."""
        ...

    def text(self, width: int = 100) -> str:
        """For a terminal of `width` columns."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Plain data without NaN: undefined numbers are None."""
        ...


class Artifact(Protocol):
    """A declaration: `suite` names the runs it is made from."""

    @property
    def name(self) -> str:
        """What `mcpo reproduce NAME` builds."""
        ...

    @property
    def suite(self) -> str:
        """A suite of `experiments/suites`."""
        ...

    def build(self, plan: Plan, reports_dir: Path) -> Built:
        """Make it from the journals of `plan`, and write it below `reports_dir`."""
        ...


@cache
def registry() -> dict[str, Artifact]:
    """All artifacts by name: the `ARTIFACT` of each module. Raises TypeError when two share a name."""
    return declared("mcpo_cli.analysis.tables", "ARTIFACT", "artifact")


def get(name: str) -> Artifact:
    """The artifact `name`.

    Raises:
        ConfigError: there is none.
    """
    if name not in registry():
        fix = f"mcpo reproduce {closest(name, registry())}"
        raise ConfigError(f"unknown artifact '{name}': {nearest(name, registry())}", fix=fix)
    return registry()[name]


def build(name: str, plan: Plan, home: Path) -> Built:
    """Build artifact `name` from the runs of `plan` below `home/reports`.

    Raises:
        ConfigError: no such artifact.
        MissingCells: a run of the plan is not done; the message names the command that fills it.
    """
    return get(name).build(plan, home / "reports")
