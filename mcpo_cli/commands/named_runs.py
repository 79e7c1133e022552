"""The runs that the words of a verb name: a suite with settings to change in it, or runs by id."""

import shlex
from collections.abc import Sequence

from mcpo_cli.commands import console
from mcpo_cli.config import plan
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import location
from mcpo_cli.runs import catalog


def plan_of(words: Sequence[str], command: str) -> Plan:
    """The plan of the runs that `words` name, whether they are done or not. command: the verb that takes the words.

    Raises:
        ConfigError: see `parted`; or there is no such suite or run.
    """
    named, overrides = parted(words, command)
    if plan.is_suite(named[0]):
        return plan.from_suite(named[0], overrides, f"mcpo ablate {shlex.quote(named[0])}")
    return catalog.plan_of(location(), named, command)


def all_done(command: str) -> Plan:
    """The plan of all done runs of MCPO_HOME. command: the verb that asks for them.

    Raises:
        ConfigError: there are none.
    """
    cells = tuple(run.cell for run in catalog.runs(location(), console.talk) if run.state == "done")
    if not cells:
        raise ConfigError(f"no done runs in {location()}", fix="mcpo train scale=smoke")
    return Plan("runs", command, cells)


def parted(words: Sequence[str], command: str) -> tuple[list[str], list[str]]:
    """The suite or runs that `words` begin with, and the overrides after them.

    Raises:
        ConfigError: nothing is named, or a suite stands beside something else, or runs beside overrides.
    """
    named, overrides = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    suites = [word for word in named if plan.is_suite(word)]
    fix = f"{command} table1, or: {command} RUN_ID RUN_ID (mcpo runs list)"
    if not named:
        raise ConfigError("name a suite, or runs", fix=fix)
    if len(suites) > 1 or (suites and len(named) > 1):
        raise ConfigError(f"name one suite, or several runs, not {', '.join(named)}", fix=fix)
    if overrides and not suites:
        raise ConfigError(f"{named[0]} is an existing run: its settings cannot be changed", fix=fix)
    return named, overrides
