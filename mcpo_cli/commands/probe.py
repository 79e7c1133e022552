"""The verb `mcpo probe`."""

from functools import partial
from typing import Annotated

import typer

from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Reply, table, verb
from mcpo_cli.commands.verbs import DryRun, Verbose
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import run_dir

EXAMPLES = """\
\b
Examples:
  mcpo probe mastery                     mastered prompts in later steps, over its suite
  mcpo probe hinge RUN_ID                the records of one run"""


ProbeName = Annotated[
    str,
    typer.Argument(
        metavar="PROBE",
        help="The question to ask; `mcpo components list probe` explains them all.",
        autocompletion=completing("probe"),
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN_ID...|CHECKPOINT...|SUITE|KEY=VALUE...",
        help="Runs or their checkpoints, a suite, or settings of new runs as for `mcpo train`.",
        autocompletion=completing("run", "suite", "override"),
    ),
]
Prompts = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of training problems to sample per checkpoint (default: all of a pool, else 1024)."
    ),
]


@verb("probe, question, arms, runs; with --dry-run: suite, home, command, estimate, runs")
def probe(
    name: ProbeName,
    overrides: Target = None,
    prompts: Prompts = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Answer one question from runs' records, from their checkpoints, or from new diagnostic runs."""
    from mcpo_cli import measures
    from mcpo_cli.commands import console, diagnostic_runs
    from mcpo_cli.commands import dry_run as shown
    from mcpo_cli.measures import summary
    from mcpo_cli.runs.journal import Journal
    from mcpo_cli.scheduling import start
    from mcpo_cli.trackers import upload

    measure, words = measures.get(name), overrides or []
    if targets := diagnostic_runs.targets(words, f"mcpo probe {name}"):
        if dry_run:
            raise ConfigError(
                "--dry-run shows runs that a probe would start; these exist already", fix="omit --dry-run"
            )
        measured = [diagnostic_runs.existing(measure, target, prompts) for target in targets]
    else:
        if prompts:
            fix = f"mcpo probe {name} RUN_ID --prompts {prompts}"
            raise ConfigError("--prompts applies to an existing run or checkpoint", fix=fix)
        plan = diagnostic_runs.runs(measure, words)
        if dry_run:
            return shown.show_plan(plan, verbose=verbose)
        start.train(plan)
        measured = [summary.measure(measure, planned, Journal(run_dir(planned.spec.run_id))) for planned in plan.runs]
    document = summary.document(measure, measured)
    values = {run.planned.spec.run_id: run.finding.values for run in measured}
    upload.upload_probe(measured[0].planned.spec.compute.tracking_uri, name, values, document, console.talk)
    columns = ["regime", "model", "arm", "seeds"]
    rows = [
        [*(str(row[column]) for column in columns), *(summary.shown(row, name) for name in measure.shows)]
        for row in document["arms"]
    ]
    legend = (
        f"{measure.question} ± half a 95 % interval over seeds. With one seed, brackets show that run's interval. "
        "Full output: --json"
    )
    return Reply(document, [table([*columns, *measure.shows], rows), partial(console.talk, legend)])
