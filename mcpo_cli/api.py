"""What Python programs may import of mcpo; every other module may change from one version to the next.

The functions are the verbs of the command line and take the same words: a suite or its file, with settings to change
in it (`"table1", "scale=smoke"`); settings alone (`"method=dapo,mcpo", "seed=0,1"`); or existing runs by their ids.
Results go to MCPO_HOME. Whatever is wrong is raised as a `McpoError`, whose message names the fix.
"""

import pandas as pd

from mcpo_cli.analysis import comparison
from mcpo_cli.analysis.comparison import Choice, Comparison
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.commands import comparisons, start_runs
from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import McpoError
from mcpo_cli.home import location
from mcpo_cli.runs import catalog
from mcpo_cli.runs.catalog import Run
from mcpo_cli.scheduling.scheduler import Outcome

__all__ = [
    "Comparison",
    "McpoError",
    "Outcome",
    "Plan",
    "PlannedRun",
    "Run",
    "RunSpec",
    "Runs",
    "compare",
    "frames",
    "plan",
    "probe",
    "runs",
    "train",
]


def plan(*words: str) -> Plan:
    """The runs that `words` ask for, done or not, as `mcpo train --dry-run` shows them; starts nothing.

    Raises:
        ConfigError: there is no such suite, setting or run.
    """
    if all("=" in word for word in words):
        return plans.from_overrides(words)
    return comparisons.plan_of(words, "mcpo train")


def train(*words: str) -> list[Outcome]:
    """Train what is missing, as `mcpo train` and `mcpo ablate` do: progress on stderr, done runs are skipped.

    Raises:
        ConfigError: see `plan`; or a requirement is missing. Nothing was started.
        RunFailed: some runs did not finish; their records are kept, and the same call continues them.
        Interrupted: a signal asked to stop.
    """
    return start_runs.finish(plan(*words))


def runs() -> list[Run]:
    """All readable runs of MCPO_HOME, by name, as `mcpo runs list` lists them."""
    return list(catalog.runs(location()))


def frames(*words: str) -> Runs:
    """The records of done runs as pandas frames: `steps()`, `eval()`, `scores()`, `settings()`, `rows(kind)`.

    Raises:
        ConfigError: see `plan`.
        MissingCells: a run is not done.
    """
    return Runs(plan(*words))


def compare(*words: str, baseline: str = "", metric: str = "", at: tuple[str, ...] = ()) -> dict[str, Comparison]:
    """The arms against a baseline at equal cost, by regime, as `mcpo compare` shows them; writes no file.

    Args:
        baseline: an arm; by default the suite's, or else the first.
        metric: `pass@1`, `best@8` or `pass@8`; by default the suite's, or else `pass@1`.
        at: what the runs had equally much of: `steps`, `rollouts`, `trained_tokens`, `seconds`, ...

    Raises:
        ConfigError: see `plan`; or there is no such arm, metric or axis.
        MissingCells: a run is neither done nor failed.
    """
    choice = Choice(baseline, metric, at)
    if words and plans.is_suite(words[0]):
        choice = comparisons.chosen(words[0], choice)
    parts = comparisons.by_regime(plan(*words))
    return {regime: comparison.compare(Runs(part, failed_too=True), choice) for regime, part in parts.items()}


def probe(name: str, *words: str) -> pd.DataFrame:
    """What a probe finds in the records of done runs, a row a run: the values that `mcpo probe --json` prints.

    Raises:
        ConfigError: see `plan`; or there is no such probe.
        MissingCells: a run is not done.
        RunFailed: a run lacks the rows that the probe reads.
    """
    return frames(*words).findings(name)
