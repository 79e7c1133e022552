"""`mcpo export`: write a policy as a Hugging Face folder with a model card."""

from pathlib import Path
from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, Json, RunId

To = Annotated[
    Path | None,
    typer.Option(help="The folder to write (default: MCPO_HOME/exports/RUN_ID/step_N).", show_default=False),
]
Step = Annotated[
    int | None, typer.Option(min=1, help="Step of the checkpoint (default: the newest).", show_default=False)
]
Push = Annotated[
    str | None,
    typer.Option(
        metavar="OWNER/NAME",
        help="Also upload the folder to this model of the Hugging Face hub; a new one is private.",
        show_default=False,
    ),
]


def export(
    run_id: RunId,
    to: To = None,
    step: Step = None,
    push: Push = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a run's policy with a model card to a folder that `mcpo evaluate`, transformers and vLLM can load."""
    from mcpo_cli import backends, paths
    from mcpo_cli.commands import console
    from mcpo_cli.errors import ConfigError
    from mcpo_cli.evaluation import model_card
    from mcpo_cli.home import home, location
    from mcpo_cli.runs import catalog, folders
    from mcpo_cli.runs.journal import Journal

    if push:
        model_card.check(push)
    run = catalog.find(location(), run_id)
    backend, name = backends.get(run.spec.backend), run.spec.run_id
    steps = backend.kept(run.folder)
    chosen = step or max(steps, default=0)
    if chosen not in steps:
        known = ", ".join(map(str, steps)) or "none"
        raise ConfigError(f"{name} has no whole checkpoint of step {chosen} (there: {known})", fix="mcpo runs list")
    target = paths.named(to or home() / "exports" / name / f"step_{chosen}")
    if target.exists():
        raise ConfigError(f"{target} already exists and is not overwritten", fix="--to FOLDER")
    with folders.whole(target, {"run_id": name, "step": chosen}) as part:
        backend.export(run.spec, run.folder, chosen, part)
        (part / "README.md").write_text(model_card.text(run.spec, Journal(run.folder), chosen), encoding="utf-8")
    address = model_card.push(target, push, f"{name} after step {chosen}") if push else None
    if as_json:
        console.print_json({"run_id": name, "step": chosen, "folder": str(target), "address": address})
    else:
        console.print_text("\n".join(filter(None, [str(target), address])))
