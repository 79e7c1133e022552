"""What is compared, by the words and options of a command: runs of a suite or a sweep, other runs, or logs."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from mcpo_cli.compare import page, readers, rules
from mcpo_cli.compare.comparison import Comparison, Question, records
from mcpo_cli.compare.log import Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.noise_floor import gated
from mcpo_cli.compare.readers import Options
from mcpo_cli.compare.regrade import Regraded, regrade
from mcpo_cli.compare.runs import of_runs
from mcpo_cli.compare.sides import is_log, run_of
from mcpo_cli.compare.sides import sides as sides_of
from mcpo_cli.config import plan, presets
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import ConfigError, similar
from mcpo_cli.home import location
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.product import Row
from mcpo_cli.runs import catalog

HISTORY = "history"
"""The name of the side of earlier runs."""
LOSS = re.compile(r"(?i)(^|[^a-z])(loss|latency|bpb|nll|ppl|perplexity|wer|cer|error|mae|mse|rmse)($|[^a-z])")
"""Names of numbers that are mostly better if lower."""


@dataclass(frozen=True)
class Subject:
    """Words and options that say what is compared."""

    words: Sequence[str]
    """A suite, settings, runs, or paths of logs."""
    arms: Mapping[str, str] = field(default_factory=dict)
    """Name of an arm -> glob of the logs of its training seeds."""
    history: str = ""
    """Glob of the logs of earlier runs, which a new run is compared with."""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns of logs by our name; if a name has several columns, the first that a file has is read."""
    benchmark: str = ""
    """The only benchmark that is compared, or its name for files that name none."""
    reader: str = ""
    """The tool that wrote the logs."""
    grader: str = ""
    """Grades the responses of all sides again."""


@dataclass(frozen=True)
class Answer:
    """A comparison, with what was compared."""

    comparison: Comparison
    question: Question
    plan: Plan | None = None
    """The runs; None for logs."""
    suite: str = ""
    """The name or file of their suite; empty for runs of no suite."""
    sides: Sequence[Side] = ()
    """The logs; none for runs."""
    regraded: Regraded | None = None

    @property
    def regime(self) -> str:
        """The regime of all runs; empty for logs."""
        return self.plan.runs[0].spec.regime if self.plan else ""

    @property
    def title(self) -> str:
        """`new against base`, after the name of a suite."""
        title = page.title(self.comparison)
        return f"{presets.stem(self.suite)}: {title}" if self.suite else title


def judged(subject: Subject, question: Question, gate: str) -> list[Answer]:
    """Compare, and judge the rules of `gate` if it has any: `no-worse:0.01`, or the path of a policy.

    Raises:
        ConfigError, MissingRuns: see `answers` and `rules.policy`; or a required rule is about no difference.
    """
    if not gate:
        return answers(subject, question)
    policy = rules.policy(gate)
    return [
        replace(answer, comparison=replace(answer.comparison, gate=gated(answer.comparison, policy, answer.question)))
        for answer in answers(subject, question)
    ]


def answers(subject: Subject, question: Question) -> list[Answer]:
    """Compare; runs of several regimes give one comparison for each.

    Raises:
        ConfigError: no such suite, setting, run, arm, metric or axis; the runs do not share seeds and problems; logs
            cannot be read or do not pair; or an option does not apply to what is compared.
        MissingRuns: a run is neither done nor failed.
    """
    words = [run_of(word) or word for word in subject.words]
    if subject.history:
        subject, question = _of_history(subject, question, words)
    if subject.arms or any(is_log(word) for word in words if not plan.is_suite(word) and "=" not in word):
        if question.at:
            raise ConfigError("logs have no cost to be equal: --at is for runs", fix="omit --at", code="contradiction")
        options = Options(dict(subject.columns), subject.benchmark)
        read = partial(readers.read_all, options=options, reader=subject.reader)
        return [_of_logs(sides_of(words, subject.arms, read, subject.history), subject, question)]
    if subject.grader:
        raise ConfigError(
            "records of runs hold no responses to all problems, so none can be graded again",
            fix="mcpo grade, of an evaluation",
            code="contradiction",
        )
    refuse({"--columns": subject.columns, "--benchmark": subject.benchmark, "--reader": subject.reader}, "runs")
    names, _ = parted(words, "mcpo compare")
    suite = names[0] if names and plan.is_suite(names[0]) else ""
    return of_plan(plan_of(words, "mcpo compare"), suite, question)


def refuse(options: Mapping[str, object], place: str) -> None:
    """Raise ConfigError if one of the options is given: they have no effect on `place`."""
    for option, value in options.items():
        if value:
            raise ConfigError(f"{option} has no effect on {place}", fix=f"omit {option}", code="contradiction")


def _of_history(subject: Subject, question: Question, words: Sequence[str]) -> tuple[Subject, Question]:
    """The history as an arm, which is the baseline.

    Raises:
        ConfigError: the history is a single file, an arm has its name, or the question has another baseline or
            intervals about others.
    """
    if HISTORY in subject.arms:
        raise ConfigError(
            f"two sides are named {HISTORY!r}: the earlier runs have this name",
            fix="give the arm another name: --arm NAME='PATHS'",
            code="duplicate_name",
        )
    if len(words) > 1 and Path(subject.history).is_file():
        raise ConfigError(
            f"--history {subject.history} is one file, which has no spread, beside {len(words)} others: did the "
            "shell expand a pattern?",
            fix="give the pattern in quotes: --history 'runs/*.csv'",
        )
    if question.baseline or question.over:
        option = f"--baseline {question.baseline}" if question.baseline else f"--over {question.over}"
        raise ConfigError(
            f"--history is the baseline, and says what intervals are about: {option} has no effect with it",
            fix=f"omit {option}, or give the earlier runs as an arm: --arm base='PATHS'",
            code="contradiction",
        )
    arms = {HISTORY: subject.history, **subject.arms}
    return replace(subject, arms=arms), replace(question, baseline=HISTORY, over="history")


def _of_logs(sides: Sequence[Side], subject: Subject, question: Question) -> Answer:
    regraded = regrade(sides, subject.grader) if subject.grader else None
    compared = regraded.sides if regraded else sides
    comparison = of_logs(compared, question)
    names = dict.fromkeys([*subject.columns.get("correct", ()), *comparison.differences["benchmark"]])
    turned = [] if question.lower else [name for name in names if LOSS.search(name)]
    notes = (f"{name}: higher counts as better; if it is not: --lower-is-better" for name in turned)
    result = replace(comparison, warnings=(*comparison.warnings, *notes))
    return Answer(result, question, sides=compared, regraded=regraded)


def of_plan(full_plan: Plan, suite: str, question: Question) -> list[Answer]:
    """Compare the arms of a plan, by regime; empty fields of the question are the suite's, if the plan has a suite.

    Raises:
        ConfigError, MissingRuns: see `answers`.
    """
    smallest = plan.SMALLEST_EFFECT
    if suite:
        definition = plan.read(suite)
        metrics = question.metrics or ((definition.metric,) if definition.metric else ())
        question = replace(question, baseline=question.baseline or definition.baseline, metrics=metrics)
        smallest = definition.smallest_effect
    question = replace(question, smallest=question.smallest or smallest)
    return [
        Answer(of_runs(Runs(part, failed_too=True), question), question, part, suite)
        for part in by_regime(full_plan).values()
    ]


def headline_rows(full_plan: Plan, suite: str, question: Question) -> list[Row]:
    """The headline's differences of the done runs of a plan (`Comparison.differences`), with their regimes.

    Raises:
        MissingRuns: a run is not done.
    """
    if not full_plan.runs:
        return []
    return [
        {"regime": answer.regime, **row}
        for answer in of_plan(full_plan, suite, question)
        for row in records(answer.comparison.headline)
    ]


def plan_of(words: Sequence[str], command: str) -> Plan:
    """The plan of the runs that `words` name, whether they are done or not. command: the verb that takes the words.

    Raises:
        ConfigError: see `parted`; or there is no such suite, setting or run.
    """
    names, overrides = parted(words, command)
    if not names:
        return plan.from_overrides(overrides)
    if plan.is_suite(names[0]):
        return plan.from_suite(names[0], overrides, f"mcpo ablate {shlex.quote(names[0])}")
    runs = [path.name for path in catalog.folders(location())]
    if (guess := similar(names[0], plan.suites())) and not any(run.startswith(names[0]) for run in runs):
        raise ConfigError(
            f"there is no suite and no run '{names[0]}': did you mean the suite '{guess}'?",
            fix=f"{command} {shlex.join([guess, *names[1:], *overrides])}",
            code="unknown_name",
        )
    return catalog.plan_of(location(), names, command)


def parted(words: Sequence[str], command: str) -> tuple[list[str], list[str]]:
    """The suite or runs that `words` begin with, and the overrides after them; no name where all words are settings.

    Raises:
        ConfigError: there are no words, or a suite and something else, or runs and overrides.
    """
    words = plan.expanded(words)
    names, overrides = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    suites = [word for word in names if plan.is_suite(word)]
    fix = f"{command} table1, or: {command} RUN_ID RUN_ID (mcpo runs list)"
    if not words:
        raise ConfigError("name a suite, settings or runs", fix=fix)
    if len(suites) > 1 or (suites and len(names) > 1):
        raise ConfigError(f"name one suite, or several runs, not {', '.join(names)}", fix=fix)
    if overrides and names and not suites:
        raise ConfigError(f"{names[0]} is an existing run: its settings cannot be changed", fix=fix)
    return names, overrides


def by_regime(whole: Plan) -> dict[str, Plan]:
    """The plan of each regime: a comparison covers one regime."""
    regimes = dict.fromkeys(run.spec.regime for run in whole.runs)
    return {
        regime: replace(whole, runs=tuple(run for run in whole.runs if run.spec.regime == regime)) for regime in regimes
    }
