"""The public Python API of mcpo; every other module may change from one version to the next.

The functions are the verbs of the command line and take the same words: a suite or its file, with settings to change
in it (`"table1", "scale=smoke"`); settings alone (`"method=dapo,mcpo", "seed=0,1"`); or existing runs by their ids.
Results go to MCPO_HOME. Every error is a `McpoError`, whose message names the fix.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from mcpo_cli.compare import subjects
from mcpo_cli.compare.comparison import Comparison, Question
from mcpo_cli.compare.subjects import Subject
from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, McpoError
from mcpo_cli.home import location
from mcpo_cli.measures.frames import Runs
from mcpo_cli.runs import catalog
from mcpo_cli.runs.catalog import Run
from mcpo_cli.scheduling import start
from mcpo_cli.scheduling.outcome import RunOutcome
from mcpo_cli.scheduling.progress import RunView

__all__ = [
    "Comparison",
    "McpoError",
    "Plan",
    "PlannedRun",
    "Run",
    "RunOutcome",
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


def plan(*words: str) -> Plan:
    """The runs that `words` ask for, done or not, as `mcpo train --dry-run` shows them; does not start any.

    Raises:
        ConfigError: there is no such suite, setting or run.
    """
    return subjects.plan_of(words, "mcpo train") if words else plans.from_overrides(words)


def train(
    *words: str,
    on_step: Callable[[RunView], None] | None = None,
    on_end: Callable[[RunView], None] | None = None,
) -> list[RunOutcome]:
    """Train what is missing, as `mcpo train` and `mcpo ablate` do: progress on stderr, done runs are skipped.

    on_step: called when a run has done a global step; `view.progress` has its number and metrics. Progress is read
    four times a second, so quicker steps are skipped. on_end: called when a run has ended; `view.state` says how.
    An error of a callback ends the runs and is raised again.

    Raises:
        ConfigError: see `plan`; or a requirement is missing. Nothing was started.
        RunFailed: some runs did not finish; their records are kept, and the same call continues them.
        Interrupted: a signal asked to stop.
    """
    return start.train(plan(*words), on_step, on_end)


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
        MissingRuns: a run is not done.
    """
    return Runs(plan(*words))


def compare(
    *words: str | Path,
    arms: Mapping[str, str] | None = None,
    history: str = "",
    baseline: str = "",
    metric: str | Sequence[str] = (),
    at: Sequence[str] = (),
    over: Literal["seeds", "problems", "both"] | None = None,
    margin: float | None = None,
    look: tuple[int, int] | None = None,
    lower_is_better: bool = False,
    columns: Mapping[str, str] | None = None,
    benchmark: str = "",
    reader: str = "",
    gate: str = "",
) -> Comparison:
    """Arms against a baseline, as `mcpo compare` shows them; writes no file.

    Args:
        words: a suite, settings, ids of runs, or paths of logs.
        arms: name of an arm -> glob of the logs of its training seeds.
        history: glob of the logs of earlier runs of the same settings, which a new run is compared with.
        baseline: an arm; by default the suite's baseline, or else the first arm.
        metric: `pass@1`, `best@8` or `maj@4`; one or several. The first is the headline's metric.
        at: for runs, the costs at which arms are compared: `steps`, `rollouts`, `trained_tokens`, `seconds`, ...
        over: what intervals are about; by default other seeds for runs, and other seeds and problems for logs.
        margin: the largest difference that does not matter, chosen before looking.
        lower_is_better: whether less is better, as with losses and latencies.
        look: `(1, 3)` for the first of three looks; all three were declared before it.
        columns: for logs, names of columns in the files, by mcpo's names.
        benchmark: for logs, the only benchmark to compare, or the benchmark's name if the files give none.
        reader: for logs, the tool that wrote them, if the files do not show it.
        gate: rules such as `no-worse:0.01`, or the path of a policy. The answer is `Comparison.gate`, with an
            `outcome` of `holds`, `broken` or `undecided`; none of them is an error.

    Raises:
        ConfigError: see `plan`; there is no such arm, metric or axis; the runs have several regimes; or the logs cannot
            be read or do not pair.
        MissingRuns: a run is neither done nor failed.
    """
    metrics = (metric,) if isinstance(metric, str) else tuple(metric)
    question = Question(
        baseline, tuple(filter(None, metrics)), tuple(at), margin, look, over=over, lower=lower_is_better
    )
    column_lists = {name: [column] for name, column in (columns or {}).items()}
    subject = Subject([*map(str, words)], arms or {}, history, column_lists, benchmark, reader)
    answers = subjects.judged(subject, question, gate)
    if len(answers) > 1:
        raise ConfigError(f"the runs have {len(answers)} regimes, which are compared one by one", fix="regime=NAME")
    return answers[0].comparison


def probe(name: str, *words: str) -> pd.DataFrame:
    """Results of a probe on the records of done runs, one row per run: the values that `mcpo probe --json` prints.

    Raises:
        ConfigError: see `plan`; or there is no such probe.
        MissingRuns: a run is not done.
        RunFailed: a run lacks the rows that the probe reads.
    """
    return frames(*words).findings(name)
