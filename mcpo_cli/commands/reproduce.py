"""The verb `mcpo reproduce`."""

import shlex
from functools import partial
from typing import Annotated

import typer

from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Part, Reply, verb
from mcpo_cli.commands.verbs import DryRun, Full, Overrides, Verbose

EXAMPLES = """\
\b
Examples:
  mcpo reproduce table1                  train what is missing, then print the table
  mcpo reproduce figures seed=0,1,2      every figure from three seeds
  mcpo reproduce ./mine.yaml             the table of a suite of your own
  mcpo reproduce all --built             every table, figure and verdict of the runs that are done; trains nothing"""
"""The end of the verb's help; click does not wrap what follows `\\b`."""

Artifact = Annotated[
    str,
    typer.Argument(
        metavar="ARTIFACT|SUITE|FILE",
        help="table1, fig2 (all its parts), ..., figures, all (and the report); a suite; a file of a suite or claims.",
        autocompletion=completing("all", "figures", "artifact"),
    ),
]
Built = Annotated[bool, typer.Option("--built", help="Train nothing: build what the runs that are done suffice for.")]


@verb(
    "suites, artifacts (by name, with rows); of `all`: suites, report; with --dry-run: suite, home, command, estimate, "
    "runs"
)
def reproduce(
    artifact: Artifact,
    overrides: Overrides = None,
    built: Built = False,
    full: Full = False,
    dry_run: DryRun = False,
    verbose: Verbose = False,
) -> Reply:
    """Train the runs that a table or figure needs, then build and print it. Rerunning gives the same numbers."""
    from mcpo_cli.machine import freeze_gc

    with freeze_gc():
        from mcpo_cli.commands import artifact_page, console
        from mcpo_cli.commands import dry_run as shown
        from mcpo_cli.report import artifacts, build
        from mcpo_cli.scheduling import outcome, start

    words = overrides or []
    is_report = artifact == artifacts.ALL
    names = build.chosen(artifact, words)
    # The report also shows what else can be built from done runs; nothing is trained for that.
    trained = [name for name in artifacts.names(artifact) if name in names]
    plans = build.plans(trained, words, f"mcpo reproduce {artifact}")
    if dry_run:
        return shown.show_plan(build.merged(plans), verbose=verbose)
    builder = build.builder(build.plans(names, words, "mcpo reproduce all") if is_report else plans, words)
    for name in () if is_report else names:
        builder.check(artifacts.get(name))
    runs = [] if built else [outcome.document(planned, start.train(planned)) for planned in plans.values()]
    completed_by = shlex.join(["mcpo", "reproduce", artifacts.ALL, *words]) if is_report else ""
    result = build.build(builder, names, suites=runs, report=completed_by)
    if len(names) == 1:
        return Reply(result.document, artifact_page.page(result.artifacts[names[0]], full=full))
    page: list[Part] = [artifact_page.sentence(item) for item in result.artifacts.values()]
    if result.files:
        lines = [*(f"written: {path}" for path in result.files), result.missing]
        page.append(partial(console.talk, "\n".join(filter(None, lines))))
    return Reply(result.document, page, result.error)
