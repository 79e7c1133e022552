"""The verb `mcpo compare` and its options."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Reply, verb
from mcpo_cli.commands.verbs import Full
from mcpo_cli.errors import ConfigError

EXAMPLES = """\
\b
Examples:
  mcpo compare method.delta=0.01,0.05 seed=0,1,2           the arms of a sweep: the words that trained it
  mcpo compare table2                                      the arms of a suite, against its first one
  mcpo compare table2 --baseline DAPO --metric best@8      another baseline, another headline
  mcpo compare mine.yaml seed=0,1,2 --at seconds           a suite of yours, at equal time
  mcpo compare dapo-toy-s-s0 mcpo-toy-s-s0                 runs by the beginnings of their ids
  mcpo compare table2 --plan                               what N seeds can find, before training them
  mcpo compare base.jsonl new.jsonl                        samples of any tool: is new better?
  mcpo compare out_base/ out_new/ --margin 0.01            two folders of lm-eval; or new not worse by a point
  mcpo compare base.jsonl new.jsonl --gate no-worse:0.01   for a script: exit code 0, 1, or 6 if undecided
  mcpo compare new.jsonl --history 'old/*.jsonl'           is a run within what earlier runs of its settings do?
  mcpo compare table2 --margin 0.02 --over both            runs, with a margin, over other problems, too
  mcpo compare runs.csv --lower-is-better                  a table of runs: columns model, seed, and a loss
  mcpo compare --arm a='logs/a-s*' --arm b='logs/b-s*'     arms of several training seeds"""
"""The end of the verb's help; click does not wrap what follows `\\b`."""


Compared = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE] [KEY=VALUE...]|RUN_ID...|LOG...",
        help="A suite or its file, settings, or both, as for `mcpo train`; several runs; or logs of any tool.",
        autocompletion=completing("suite", "override", "run", "file"),
    ),
]
Baseline = Annotated[
    str,
    typer.Option(
        metavar="ARM",
        help="The arm to compare with (default: the suite's, else the first).",
        autocompletion=completing("arm"),
    ),
]
Metric = Annotated[
    list[str] | None,
    typer.Option(
        help="pass@K, best@K, maj@K, the majority's answer, or pass^K, all K correct (repeatable, or pass@1,pass@8); "
        "the first is the headline's (default: the suite's, else pass@1).",
        autocompletion=completing("pass@1", "best@8", "pass@8", "maj@8"),
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        help="Cost at which runs are compared: steps, rollouts, trained_tokens, seconds, ... (repeatable; default: "
        "steps and rollouts).",
        autocompletion=completing("axis"),
    ),
]
Over = Annotated[
    Literal["seeds", "problems", "both"] | None,
    typer.Option(help="What intervals are about: other seeds, other problems, or both (default: seeds for runs)."),
]
Seeds = Annotated[bool, typer.Option("--plan", help="Show which difference N seeds can detect; needs no runs.")]
Arm = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=GLOB", help="Logs of the training seeds of one arm (repeatable)."),
]
History = Annotated[
    str,
    typer.Option(
        metavar="GLOB",
        help="Logs of earlier runs of the same settings: is the new run within what they do? At least three.",
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER", help="The largest difference that does not matter, chosen before looking; 0.01 is one point."
    ),
]
Lower = Annotated[
    bool, typer.Option("--lower-is-better", help="Lower values are better: losses, latencies, bits per byte.")
]
Gate = Annotated[
    str,
    typer.Option(
        metavar="RULE|FILE.yaml",
        help="Exit with 0 if a rule holds, 1 if it is broken, 6 if the data cannot tell: no-worse:M, better, "
        "equivalent:M, or no-worse (not found worse); BENCHMARK=RULE,... for some (mean, each); or a policy in a file.",
        autocompletion=completing("no-worse", "better", "equivalent:0.01", "file"),
    ),
]
Look = Annotated[
    str,
    typer.Option(metavar="I/N", help="This is look I of N at growing data, declared before the first; levels follow."),
]
Regrade = Annotated[
    str,
    typer.Option(
        metavar="GRADER",
        help="Grade the stored responses of all sides again, and say what of the difference was the grader's.",
        autocompletion=completing("grader"),
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        metavar="NAME=COLUMN,...",
        help="Columns with other names, such as correct=exact_match,problem=doc_id; of several for one NAME, each file "
        "is read by the first that it has.",
    ),
]
Benchmark = Annotated[str, typer.Option(help="Compare this benchmark only, or name the one of files that name none.")]
ReaderName = Annotated[
    str,
    typer.Option(
        "--reader",
        help="The tool that wrote the logs, where it cannot be seen.",
        autocompletion=completing("reader"),
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Write the files there (default: reports/compare/ in MCPO_HOME)."),
]
MLflow = Annotated[bool, typer.Option("--mlflow", help="Log the comparison to MLflow, too (a suite's always is).")]


@verb(
    "comparisons (title, gate, sentences, baseline, metric, level, warnings, differences, scores, files, ...); with "
    "--plan: suite, trained_by, in_stages, power, alpha, smallest_effect, in_standard_deviations, "
    "without_spread, differences"
)
def compare(
    what: Compared = None,
    baseline: Baseline = "",
    metric: Metric = None,
    at: At = None,
    over: Over = None,
    margin: Margin = None,
    lower_is_better: Lower = False,
    gate: Gate = "",
    look: Look = "",
    plan: Seeds = False,
    arm: Arm = None,
    history: History = "",
    regrade: Regrade = "",
    columns: Columns = "",
    benchmark: Benchmark = "",
    reader: ReaderName = "",
    out: Out = None,
    full: Full = False,
    mlflow: MLflow = False,
) -> Reply:
    """Compare arms with a baseline: of a suite, a sweep, runs, or logs of any tool. Trains nothing."""
    if not what and not arm:
        raise ConfigError(
            "name a suite, the settings of runs, runs, or logs",
            fix="mcpo compare base.jsonl new.jsonl, or: mcpo compare table1",
        )
    from mcpo_cli import paths
    from mcpo_cli.commands import comparison, console
    from mcpo_cli.compare import seeds_needed
    from mcpo_cli.compare.subjects import Subject, refuse

    question = comparison.question(baseline, metric or (), at or (), margin, look, over, lower=lower_is_better)
    if plan:
        refuse(
            {
                "--over": over, "--margin": margin, "--look": look, "--gate": gate, "--arm": arm, "--history": history,
                "--regrade": regrade, "--columns": columns, "--benchmark": benchmark, "--reader": reader, "--out": out,
                "--mlflow": mlflow,
            },
            "--plan",
        )  # fmt: skip
        document = seeds_needed.needed(what or [], question)
        return Reply(document, [*seeds_needed.page(document), partial(console.talk, seeds_needed.legend(document))])
    arms, names = comparison.arms(arm or ()), comparison.columns(columns)
    subject = Subject(what or [], arms, history, names, benchmark, reader, regrade)
    destination = comparison.Destination(paths.named(out) if out else None, mlflow)
    return comparison.reply(subject, question, destination, gate=gate, full=full)
