"""Arguments and options that several verbs share, with their shell completion."""

import textwrap
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

EXAMPLES = """\
  mcpo train scale=smoke                                  everything once, in seconds
  mcpo train method=mcpo model=toy-m seed=0,1,2           a sweep: one run a seed
  mcpo train method=dapo,mcpo train.lr=5e-4 --dry-run     what would run, and for how long
  mcpo train method=mcpo method.delta=0.02 regime=skills-drift"""


def complete_overrides(ctx: typer.Context, incomplete: str) -> list[str]:
    """Presets with their names, and settings; after `method=`, the methods."""
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
    """The suites that are shipped."""
    from mcpo_cli.config import plan

    return [name for name in plan.suites() if name.startswith(incomplete)]


def complete_artifacts(incomplete: str) -> list[str]:
    """What can be reproduced."""
    from mcpo_cli.analysis import artifacts

    return [name for name in (artifacts.ALL, "figures", *artifacts.registry()) if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """The registered methods."""
    from mcpo_cli.config import load

    return [name for name in load.groups()["method"] if name.startswith(incomplete)]


def complete_suite_overrides(ctx: typer.Context, incomplete: str) -> list[str]:
    """The suites, where none is given yet, and what `complete_overrides` offers."""
    suites = [] if ctx.params.get("overrides") else complete_suites(incomplete)
    return suites + complete_overrides(ctx, incomplete)


def complete_run_id(incomplete: str) -> list[str]:
    """The runs of MCPO_HOME."""
    from mcpo_cli import home
    from mcpo_cli.runs import catalog

    return [path.name for path in catalog.folders(home.location()) if path.name.startswith(incomplete)]


@dataclass
class ErrorStyle:
    """How `main` shows an error. It hands this object to the parser, whose context carries it to the options."""

    as_json: bool = False
    """Print one JSON document on stdout, too."""
    debug: bool = False
    """Print the traceback."""


def _set_style(ctx: typer.Context, param: typer.CallbackParam, value: bool) -> bool:
    setattr(ctx.ensure_object(ErrorStyle), str(param.name), value)
    return value


class Verbs(TyperGroup):
    """The command line as a whole. Until a verb has read its options, the words alone say how to show an error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does it."""
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
        help="A suite, such as table1, and what to change in it; or only settings.",
        autocompletion=complete_suite_overrides,
        show_default=False,
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN_ID", help="A run, or how its id begins.", autocompletion=complete_run_id)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run; start nothing.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout.", callback=_set_style, is_eager=True)
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Print the traceback of an error.", callback=_set_style, is_eager=True)
]


class OverridesCommand(TyperCommand):
    """A verb whose help goes on with the presets and settings that overrides may name."""

    def get_help(self, ctx: Any) -> str:
        """The help; the settings are read only when somebody asks for it."""
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
