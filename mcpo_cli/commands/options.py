"""Arguments and options shared by several commands, with their shell completion."""

import textwrap
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

EXAMPLES = """\
  mcpo train scale=smoke                                  every stage once, in seconds
  mcpo train method=mcpo model=toy-m seed=0,1,2           a sweep: one run per seed
  mcpo train method=dapo,mcpo train.lr=5e-4 --dry-run     the planned runs and their estimated time
  mcpo train method=mcpo method.delta=0.02 regime=skills-drift"""


def complete_overrides(ctx: typer.Context, incomplete: str) -> list[str]:
    """Presets and settings; after a preset group such as `method=`, its names."""
    from mcpo_cli.config.load import groups, keys

    presets = groups()
    # bash splits words at "=": `method=mc` arrives as `method`, `=` and the incomplete `mc`.
    given = [word for word in ctx.params.get("overrides") or [] if word != "="]
    if given and given[-1] in presets:
        return [value for value in presets[given[-1]] if value.startswith(incomplete)]
    named = [f"{key}={value}" for key, values in presets.items() for value in values]
    settings = [f"{key}=" for key in keys()]
    return [word for word in named + settings if word.startswith(incomplete)]


def complete_suites(incomplete: str) -> list[str]:
    """Names of the suites."""
    from mcpo_cli.config import plan

    return [name for name in plan.suites() if name.startswith(incomplete)]


def complete_artifacts(incomplete: str) -> list[str]:
    """Names of the artifacts that can be reproduced."""
    from mcpo_cli.analysis import artifacts

    return [name for name in (artifacts.ALL, "figures", *artifacts.registry()) if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Names of the registered methods."""
    from mcpo_cli.config import load

    return [name for name in load.groups()["method"] if name.startswith(incomplete)]


def complete_suite_overrides(ctx: typer.Context, incomplete: str) -> list[str]:
    """The suites, if none is given yet, and what `complete_overrides` offers."""
    suites = [] if ctx.params.get("overrides") else complete_suites(incomplete)
    return suites + complete_overrides(ctx, incomplete)


def complete_run_id(incomplete: str) -> list[str]:
    """Ids of the runs in MCPO_HOME."""
    from mcpo_cli import home
    from mcpo_cli.runs import catalog

    return [path.name for path in catalog.folders(home.location()) if path.name.startswith(incomplete)]


@dataclass
class ErrorStyle:
    """How `main` shows an error; the options set it through the parser's context."""

    as_json: bool = False
    """Also print one JSON document on stdout."""
    debug: bool = False
    """Print the traceback."""


def _set_style(ctx: typer.Context, param: typer.CallbackParam, value: bool) -> bool:
    setattr(ctx.ensure_object(ErrorStyle), str(param.name), value)
    return value


class Verbs(TyperGroup):
    """The whole command line. Sets the error style from the raw words, for errors before options are parsed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `TyperGroup`."""
        style = ctx.ensure_object(ErrorStyle)
        style.as_json, style.debug = "--json" in args, "--debug" in args
        return super().parse_args(ctx, args)


Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Presets and settings in Hydra's grammar; commas make a sweep.",
        autocompletion=complete_overrides,
        show_default=False,
    ),
]
SuiteOverrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SUITE|KEY=VALUE",
        help="A suite, such as table1, with settings to change in it; or settings only.",
        autocompletion=complete_suite_overrides,
        show_default=False,
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN_ID", help="A run's id, or the start of it.", autocompletion=complete_run_id)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run; start nothing.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout.", callback=_set_style, is_eager=True)
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Print the traceback of an error.", callback=_set_style, is_eager=True)
]


class OverridesCommand(TyperCommand):
    """A command whose help also lists the presets and settings that overrides may name."""

    def get_help(self, ctx: Any) -> str:
        """The help text; reads the settings only when it is printed."""
        return super().get_help(ctx) + _settings()


def _settings() -> str:
    from mcpo_cli.config.load import groups, keys, read_default

    presets = [
        f"  {group:<8}  {', '.join(names)} (default: {read_default(group)})" for group, names in groups().items()
    ]
    names: dict[str, list[str]] = {}
    for key in sorted(set(keys()) - set(groups())):
        group, _, name = key.rpartition(".")
        names.setdefault(group, []).append(name)
    settings = [
        textwrap.fill(f"  {group:<8}  {', '.join(members)}", 79, subsequent_indent=" " * 12)
        for group, members in names.items()
    ]
    return "\n".join(
        ["Presets, group=name:", *presets, "", "Settings, group.key=value:", *settings, "", "Examples:", EXAMPLES]
    )
