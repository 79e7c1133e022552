"""Shared by verbs: arguments and options with their completion, the help of verbs that take settings."""

import itertools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mcpo_cli.errors import ConfigError

MEANT = {
    "version": ["--version"],
    "-V": ["--version"],
    "plan": ["train", "--dry-run"],
    "list": ["runs", "list"],
    "ls": ["runs", "list"],
    "status": ["runs", "list"],
    "show": ["runs", "show"],
    "samples": ["runs", "samples"],
    "delete": ["runs", "delete"],
}
"""Verbs of other tools, and the words that replace them."""
REFUSED = {
    "resume": ("the command that trained a run continues it: `mcpo runs show RUN_ID` names it", "mcpo runs list"),
    "eval": ("the verb is evaluate", "mcpo evaluate --help"),
    "run": ("the verb is train", "mcpo train --help"),
}
"""Verbs of other tools without a counterpart: the explanation and its fix."""
SETTINGS = """\

Settings, group.key=value: mcpo help lists them, mcpo help train explains a group."""


def without_habits(words: Sequence[str]) -> list[str]:
    """The words of a command line, with a verb of another tool replaced.

    Raises:
        ConfigError: mcpo has no such verb; the message names the alternative.
    """
    first, rest = "".join(words[:1]), list(words[1:])
    if first in REFUSED and not {"--help", "-h"} & set(rest):
        instead, fix = REFUSED[first]
        raise ConfigError(f"mcpo has no verb '{first}': {instead}", fix=fix, code="unknown_name")
    return [*MEANT[first], *rest] if first in MEANT else list(words)


def complete_overrides(ctx: typer.Context, incomplete: str) -> list[str]:
    """Presets and settings; after a preset group such as `method=`, its names."""
    from mcpo_cli.config.presets import groups, keys

    presets = groups()
    # bash splits words at "=": `method=mc` arrives as `method`, `=` and the incomplete `mc`.
    given = [word for word in ctx.params.get("overrides") or [] if word != "="]
    if given and given[-1] in presets:
        return starting_with(incomplete, presets[given[-1]])
    named = [f"{key}={value}" for key, values in presets.items() for value in values]
    settings = [f"{key}=" for key in keys()]
    return starting_with(incomplete, named + settings)


def starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin with `incomplete`."""
    return [name for name in names if name.startswith(incomplete)]


def complete_suites(incomplete: str) -> list[str]:
    """Names of the suites."""
    from mcpo_cli.config import plan

    return starting_with(incomplete, plan.suites())


def completing(group: str) -> Callable[[str], list[str]]:
    """A function that completes the names of a group of presets, such as `method`."""

    def complete(incomplete: str) -> list[str]:
        from mcpo_cli.config import presets

        return starting_with(incomplete, presets.groups()[group])

    return complete


def complete_suite_overrides(ctx: typer.Context, incomplete: str) -> list[str]:
    """The suites, if none is given yet, and the completions of `complete_overrides`."""
    suites = [] if ctx.params.get("overrides") else complete_suites(incomplete)
    return suites + complete_overrides(ctx, incomplete)


def complete_suite_or_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The completions of `complete_suite_overrides`, and the runs if no word is given yet."""
    runs = [] if ctx.params.get("what") else complete_run_id(incomplete)
    ctx.params["overrides"] = ctx.params.get("what")
    return complete_suite_overrides(ctx, incomplete) + runs


def complete_settings(incomplete: str) -> list[str]:
    """Keys of settings, groups of presets, and the groups of keys."""
    from mcpo_cli.config.presets import groups, keys

    known = {*keys(), *groups(), *(key.partition(".")[0] for key in keys())}
    return sorted(starting_with(incomplete, known))


def complete_run_id(incomplete: str) -> list[str]:
    """Ids of the runs in MCPO_HOME."""
    from mcpo_cli import home
    from mcpo_cli.runs import catalog

    return starting_with(incomplete, (path.name for path in catalog.folders(home.location())))


@dataclass
class ErrorStyle:
    """The way in which `main` shows an error; the options set it through the parser's context."""

    as_json: bool = False
    """Also print one JSON document on stdout."""
    debug: bool = False
    """Print the traceback."""


def _set_style(ctx: typer.Context, param: typer.CallbackParam, value: bool) -> bool:
    setattr(ctx.ensure_object(ErrorStyle), str(param.name), value)
    return value


def _only_when_dry(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    if value and not ctx.params["dry_run"]:
        option = f"--{str(param.name).replace('_', '-')}"
        raise ConfigError(f"{option} requires --dry-run", fix=f"--dry-run {option}")
    return value


class Family(TyperGroup):
    """A group of verbs, whose help has the first sentence of each in full."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See click's `Group`, which cuts these sentences to one line."""
        verbs = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(200)) for name, verb in verbs if verb])


class Verbs(Family):
    """The whole command line. Sets the error style from the raw words, for errors before options are parsed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `TyperGroup`. Verbs of other tools are replaced."""
        style = ctx.ensure_object(ErrorStyle)
        style.as_json, style.debug = "--json" in args, "--debug" in args
        return super().parse_args(ctx, without_habits(args))


Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Presets and settings in Hydra's grammar; commas make a sweep.",
        autocompletion=complete_overrides,
    ),
]
SuiteOverrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SUITE|KEY=VALUE",
        help="A suite, such as table1, with settings to change in it; or settings only.",
        autocompletion=complete_suite_overrides,
    ),
]
What = Annotated[
    list[str],
    typer.Argument(
        metavar="SUITE|FILE|RUN_ID [KEY=VALUE]",
        help="A suite or its file, with settings to change in it; or several runs.",
        autocompletion=complete_suite_or_runs,
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN_ID", help="A run's id, or the start of it.", autocompletion=complete_run_id)
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the runs that would start; start nothing.", is_eager=True)
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="With --dry-run: also each setting of the process that a backend such as verl would start.",
        callback=_only_when_dry,
    ),
]
Full = Annotated[
    bool, typer.Option("--full", help="Print every table and how to read it, not only the verdict and what it needs.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout.", callback=_set_style, is_eager=True)
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Print the traceback of an error.", callback=_set_style, is_eager=True)
]


class OverridesCommand(TyperCommand):
    """A command that takes overrides; its help ends with the presets and with where settings are explained."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises ConfigError for a setting that is written like an option, such as `--seed 3`."""
        own = {name for param in self.params for name in param.opts}
        for word, following in itertools.pairwise([*args, "VALUE"]):
            name, _, value = word.partition("=")
            if name == "--config":
                raise ConfigError(
                    "--config is not an option: a file of settings or of a suite comes first, without it",
                    fix=f"mcpo {ctx.info_name} {value or ('FILE' if following == 'VALUE' else following)}",
                )
            if name.startswith("--") and name not in own and _is_setting(name.removeprefix("--")):
                value = value or ("VALUE" if following.startswith("-") else following)
                raise ConfigError(f"{name} is not an option but a setting", fix=f"{name.removeprefix('--')}={value}")
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """The help text; reads the presets only when it is printed."""
        return "\n".join([super().get_help(ctx), "", *_presets(), SETTINGS])


def _is_setting(name: str) -> bool:
    from mcpo_cli.config.presets import groups, keys

    return name in keys() or name in groups()


def _presets() -> list[str]:
    from mcpo_cli.config import presets

    lines = []
    for group, names in presets.groups().items():
        default = presets.default(group)
        lines.append(f"{group}={', '.join([f'{default} (default)', *(name for name in names if name != default)])}")
    filled = [textwrap.fill(f"  {line}", 79, subsequent_indent=" " * 10, break_on_hyphens=False) for line in lines]
    return ["Presets, group=name:", *filled]
