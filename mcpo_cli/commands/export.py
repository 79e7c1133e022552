"""`mcpo export`: write a checkpoint as a Hugging Face folder."""

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


def export(run_id: RunId, to: To = None, step: Step = None, as_json: Json = False, debug: Debug = False) -> None:
    """Convert a checkpoint of a verl run to a folder that `mcpo evaluate`, transformers and vLLM can load."""
    from mcpo_cli.backends.verl import checkpoint
    from mcpo_cli.backends.verl import export as exporting
    from mcpo_cli.commands import console
    from mcpo_cli.errors import ConfigError
    from mcpo_cli.home import home, location
    from mcpo_cli.runs import catalog

    run = catalog.find(location(), run_id)
    if run.spec.backend != "verl":
        fix = f"mcpo evaluate {run.spec.run_id}"
        raise ConfigError(
            f"{run.spec.run_id} was trained by backend={run.spec.backend}, whose policy needs no export", fix=fix
        )
    root = run.folder / "checkpoints"
    chosen = step or checkpoint.newest(root)
    target = (to or home() / "exports" / run.spec.run_id / f"step_{chosen}").expanduser()
    if target.exists():
        raise ConfigError(f"{target} already exists and is not overwritten", fix="--to FOLDER")
    exporting.policy(root, chosen, target, run.spec)
    if as_json:
        console.print_json({"run_id": run.spec.run_id, "step": chosen, "folder": str(target)})
    else:
        console.print_text(str(target))
