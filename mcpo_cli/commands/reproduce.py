"""`mcpo reproduce`: a table of the paper, from whatever is missing to the printed result."""

from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, DryRun, Json, Overrides, complete_artifacts

Artifact = Annotated[
    str, typer.Argument(metavar="table1|table2|why-reweight", help="What to build.", autocompletion=complete_artifacts)
]


def reproduce(
    artifact: Artifact,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run what a table still needs, then build, write and print it. Again: trains nothing, same digits."""
    from mcpo_cli import console, plan
    from mcpo_cli.analysis import artifacts
    from mcpo_cli.commands.execute import run_plan, show_plan
    from mcpo_cli.runs.home import home

    suite = artifacts.get(artifact).suite
    planned = plan.from_suite(suite, overrides or [], f"mcpo reproduce {artifact}")
    if dry_run:
        show_plan(planned, as_json=as_json, previews=True)
        return
    document = run_plan(planned)
    built = artifacts.build(artifact, planned, home())
    if as_json:
        console.print_json({**document, artifact: built.to_json(), "files": [str(path) for path in built.paths]})
    else:
        console.print_text(built.text(console.width()))
        console.talk("\n".join(f"written: {path}" for path in built.paths))
