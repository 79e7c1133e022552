"""What no machine can train of a plan: asked before a start and by a dry run, which say the same."""

from collections.abc import Iterable

from mcpo_cli import backends
from mcpo_cli.config import forking
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import location
from mcpo_cli.runs import forks


def check(specs: Iterable[RunSpec]) -> None:
    """Raise ConfigError for the first of `specs` that could not do its first step on any machine.

    Writes nothing and fetches nothing.
    """
    for spec in specs:
        if spec.fork:
            _check_fork(spec)


def _check_fork(spec: RunSpec) -> None:
    """A fork has a state to begin from, its own or one that the other run kept."""
    kept = backends.get(spec.backend).kept
    if max(kept(location() / "runs" / spec.run_id), default=0) < forking.place(spec.fork)[1]:
        forks.origin(spec, kept)
