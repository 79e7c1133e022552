"""`mcpo probe`: answer one question about forgetting, drift or weights, from new or existing runs."""

from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, DryRun, Json, Verbose, complete_run_id, complete_suite_overrides


def _complete_names(incomplete: str) -> list[str]:
    from mcpo_cli import probes

    return [name for name in probes.registry() if name.startswith(incomplete)]


def _complete_what(ctx: typer.Context, incomplete: str) -> list[str]:
    runs = [] if ctx.params.get("overrides") else complete_run_id(incomplete)
    return runs + complete_suite_overrides(ctx, incomplete)


Name = Annotated[
    str,
    typer.Argument(
        metavar="PROBE",
        help="The question to ask; `mcpo probe list` explains them all.",
        autocompletion=_complete_names,
    ),
]
What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN_ID|CHECKPOINT|SUITE|KEY=VALUE",
        help="A run, one of its checkpoints, a suite, or settings of a new run as for `mcpo train`.",
        autocompletion=_complete_what,
        show_default=False,
    ),
]
Prompts = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of training problems to sample per checkpoint (default: all of a pool, else 1024).",
        show_default=False,
    ),
]


def probe(
    name: Name,
    overrides: What = None,
    prompts: Prompts = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Answer one question from runs' records, from their checkpoints, or from new diagnostic runs."""
    from mcpo_cli import probes
    from mcpo_cli.commands import console, publish
    from mcpo_cli.commands.start_runs import run_plan, show_dry_run
    from mcpo_cli.errors import ConfigError
    from mcpo_cli.home import run_dir
    from mcpo_cli.probes import study, targets
    from mcpo_cli.runs.journal import Journal

    if name == "list":
        _list(as_json=as_json)
        return
    chosen, words = probes.get(name), overrides or []
    target = targets.target(words)
    if target:
        if dry_run:
            raise ConfigError(
                "--dry-run applies to runs that a probe starts; this one exists", fix="leave --dry-run out"
            )
        measured = [targets.existing(chosen, target, prompts)]
    else:
        if prompts:
            raise ConfigError(
                "--prompts applies to an existing run or checkpoint",
                fix=f"mcpo probe {name} RUN_ID --prompts {prompts}",
            )
        plan = targets.runs(chosen, words)
        if dry_run:
            show_dry_run(plan, as_json=as_json, verbose=verbose)
            return
        run_plan(plan)
        measured = [study.measure(chosen, cell, Journal(run_dir(cell.spec.run_id))) for cell in plan.cells]
    document = study.document(chosen, measured)
    publish.publish_probe(chosen, measured, document)
    if as_json:
        console.print_json(document)
        return
    columns = ["regime", "model", "arm", "seeds"]
    rows = [[*(str(row[column]) for column in columns), *study.shown(row, chosen.shows)] for row in document["arms"]]
    console.print_table([*columns, *chosen.shows], rows)
    console.talk(
        f"{chosen.question} ± half a 95 % interval over seeds. With one seed, brackets show that run's interval. "
        "Full output: --json"
    )


def _list(*, as_json: bool) -> None:
    from mcpo_cli import probes
    from mcpo_cli.commands import console

    known = probes.registry().values()
    if as_json:
        listed = [{"probe": one.name, "question": one.question, "shows": one.shows} for one in known]
        console.print_json({"probes": listed})
    else:
        console.print_table(["probe", "question"], [[one.name, one.question] for one in known])
