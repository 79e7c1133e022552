"""The public Python API of mcpo; every other module may change from one version to the next.

The functions are the verbs of the command line and take the same words: a suite or its file, with settings to change
in it (`"table1", "scale=smoke"`); settings alone (`"method=dapo,mcpo", "seed=0,1"`); or existing runs by their ids.
Results go to MCPO_HOME. Every error is a `McpoError`, whose message names the fix.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import overload

import pandas as pd

from mcpo_cli.analysis import comparison
from mcpo_cli.analysis.comparison import Choice, Comparison
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.commands import compare_logs, comparisons
from mcpo_cli.compare import comparison as logs
from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import McpoError
from mcpo_cli.home import location
from mcpo_cli.runs import catalog
from mcpo_cli.runs.catalog import Run
from mcpo_cli.scheduling import start
from mcpo_cli.scheduling.forecast import forecast
from mcpo_cli.scheduling.outcome import Outcome
from mcpo_cli.scheduling.progress import RunView

__all__ = [
    "Comparison",
    "LogComparison",
    "McpoError",
    "Outcome",
    "Plan",
    "PlannedRun",
    "Run",
    "RunSpec",
    "RunView",
    "Runs",
    "compare",
    "frames",
    "plan",
    "probe",
    "runs",
    "train",
]


LogComparison = logs.Comparison
"""The result of `compare` for logs: frames `arms`, `differences`, `sources`, `flips`, `curves`, and `warnings`."""


def plan(*words: str) -> Plan:
    """The runs that `words` ask for, done or not, as `mcpo train --dry-run` shows them; does not start any.

    Raises:
        ConfigError: there is no such suite, setting or run.
    """
    return comparisons.plan_of(words, "mcpo train") if words else plans.from_overrides(words)


def train(
    *words: str,
    on_step: Callable[[RunView], None] | None = None,
    on_end: Callable[[RunView], None] | None = None,
) -> list[Outcome]:
    """Train what is missing, as `mcpo train` and `mcpo ablate` do: progress on stderr, done runs are skipped.

    on_step: called when a run has done a global step; `view.progress` has its number and metrics. Progress is read
    four times a second, so quicker steps are skipped. on_end: called when a run has ended; `view.state` says how.
    An error of a callback ends the runs and is raised again.

    Raises:
        ConfigError: see `plan`; or a requirement is missing. Nothing was started.
        RunFailed: some runs did not finish; their records are kept, and the same call continues them.
        Interrupted: a signal asked to stop.
    """
    return start.train(forecast(plan(*words)), on_step, on_end)


def runs(*where: str, sort: str = "") -> list[Run]:
    """The readable runs of MCPO_HOME with these settings (`"method=mcpo", "state=done"`), by name or by `sort`.

    where: `tag=NAME` chooses by tag. sort: a setting, `name`, `state`, `score` or `date`; with a minus in front, the
    largest first.

    Raises:
        ConfigError: no run has a setting of that name.
    """
    return catalog.chosen(catalog.runs(location()), where, sort)


def frames(*words: str) -> Runs:
    """The records of done runs as pandas frames: `steps()`, `eval()`, `scores()`, `settings()`, `rows(kind)`.

    Raises:
        ConfigError: see `plan`.
        MissingCells: a run is not done.
    """
    return Runs(plan(*words))


@overload
def compare(*words: str, baseline: str = "", metric: str = "", at: tuple[str, ...] = ()) -> dict[str, Comparison]: ...


@overload
def compare(
    *words: Path,
    arms: Mapping[str, str] | None = None,
    baseline: str = "",
    margin: float | None = None,
    k: int | Sequence[int] = 1,
    maj: Sequence[int] = (),
    look: str = "",
    columns: Mapping[str, str] | None = None,
    benchmark: str = "",
    reader: str = "",
) -> LogComparison: ...


def compare(
    *words: str | Path,
    arms: Mapping[str, str] | None = None,
    baseline: str = "",
    metric: str = "",
    at: tuple[str, ...] = (),
    margin: float | None = None,
    k: int | Sequence[int] = 1,
    maj: Sequence[int] = (),
    look: str = "",
    columns: Mapping[str, str] | None = None,
    benchmark: str = "",
    reader: str = "",
) -> dict[str, Comparison] | LogComparison:
    """The arms against a baseline, as `mcpo compare` shows them; writes no file.

    For words of a suite, or ids of runs, by regime and at equal cost; for paths of logs, one comparison of frames.

    Args:
        words: of logs, `Path`s, one for each side (two ids of runs are strings).
        arms: of logs, name of an arm -> glob of the logs of its training seeds.
        baseline: an arm; by default the suite's, or else the first.
        metric: of a suite, `pass@1`, `best@8` or `pass@8`; by default the suite's, or else `pass@1`.
        at: of a suite, the budgets at which arms are compared: `steps`, `rollouts`, `trained_tokens`, `seconds`, ...
        margin: of logs, the largest difference that does not matter, chosen before looking.
        k: of logs, the k of pass@k, one or several.
        maj: of logs, the k of maj@k, the majority's answer.
        look: of logs, `1/3` for the first of three looks that were declared before the first.
        columns: of logs, names of columns in the files, by the names that mcpo has for them.
        benchmark: of logs, the only benchmark to compare, or its name for files that give none.
        reader: of logs, the tool that wrote them, if the files do not show it.

    Raises:
        ConfigError: see `plan`; there is no such arm, metric or axis; or the logs cannot be read or do not pair.
        MissingCells: a run is neither done nor failed.
    """
    names = [str(word) for word in words]
    if arms or any(isinstance(word, Path) for word in words):
        numbers = [k] if isinstance(k, int) else k
        asked = compare_logs.Asked(
            names,
            [f"{name}={pattern}" for name, pattern in (arms or {}).items()],
            baseline,
            margin,
            [str(number) for number in numbers],
            ",".join(f"{name}={column}" for name, column in (columns or {}).items()),
            benchmark,
            reader,
            [str(number) for number in maj],
            look,
        )
        return logs.compare(asked.sides(), asked.question())
    choice = Choice(baseline, metric, at)
    if names and plans.is_suite(names[0]):
        choice = comparisons.chosen(names[0], choice)
    parts = comparisons.by_regime(plan(*names))
    return {regime: comparison.compare(Runs(part, failed_too=True), choice) for regime, part in parts.items()}


def probe(name: str, *words: str) -> pd.DataFrame:
    """Results of a probe on the records of done runs, one row per run: the values that `mcpo probe --json` prints.

    Raises:
        ConfigError: see `plan`; or there is no such probe.
        MissingCells: a run is not done.
        RunFailed: a run lacks the rows that the probe reads.
    """
    return frames(*words).findings(name)
