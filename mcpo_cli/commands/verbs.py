"""Shared by verbs: arguments and options with their completion, the help of verbs that take settings."""

import itertools
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import ErrorStyle
from mcpo_cli.errors import ConfigError, mend, nearest

PANELS = {
    "Train": ("train", "ablate", "reproduce"),
    "Compare": ("compare", "claim", "probe"),
    "Look": ("runs", "evaluate", "grade", "ui"),
    "Keep and hand on": ("fork", "verify", "export"),
    "Extend, and get help": ("components", "doctor", "help"),
}
"""Every verb, by what a person does with it: the headings of `mcpo --help`."""
OLD = {
    "version": "--version",
    "-V": "--version",
    "plan": "train --dry-run",
    "run": "train",
    "list": "runs list",
    "ls": "runs list",
    "status": "runs list",
    "show": "runs show",
    "samples": "runs samples",
    "delete": "runs delete",
    "eval": "evaluate",
    "report": "reproduce all --built",
    "branch": "fork",
    **{kind: f"components list {kind}" for kind in ("method", "sampler", "task", "data", "model")},
}
"""Verbs of other tools and of earlier versions, and the words that do the same today."""
SETTINGS = """\

Settings, group.key=value: mcpo help lists them, mcpo help train explains a group."""


def check_verb(words: Sequence[str]) -> None:
    """Refuse a verb of another tool or of an earlier version.

    Raises:
        ConfigError: mcpo has no such verb; the fix is the same command with today's words.
    """
    first, *tail = words or [""]
    if first == "resume":
        continues = "the command that trained a run continues it: mcpo runs show RUN_ID names it"
        raise ConfigError(f"mcpo has no verb 'resume': {continues}", fix="mcpo runs list", code="unknown_name")
    if first in OLD:
        verb = OLD[first]
        # An action of a kind of components comes before the kind.
        if verb.startswith("components") and tail:
            action, *tail = tail
            verb = f"components {action.replace('audit', 'check')} {first}"
        fix = shlex.join(["mcpo", *verb.split(), *_typed(tail)])
        raise ConfigError(f"mcpo has no verb '{first}'", fix=fix, code="unknown_name")


def _typed(words: Sequence[str]) -> list[str]:
    """Words of a command without options about its output, for a fix."""
    return [word for word in words if word not in ("--json", "--debug")]


def _only_when_dry(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    if value and not ctx.params["dry_run"]:
        option = f"--{str(param.name).replace('_', '-')}"
        raise ConfigError(f"{option} requires --dry-run", fix=f"--dry-run {option}")
    return value


class Family(TyperGroup):
    """A group of verbs, whose help has the first sentence of each verb in full."""

    panels: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The verbs under each heading of the help; without headings, all verbs are under one."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See click's `Group`, which cuts these sentences to one line."""
        for heading, names in (self.panels or {"Commands": self.list_commands(ctx)}).items():
            verbs = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(name, verb.get_short_help_str(200)) for name, verb in verbs if verb])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See click's `Group`. Raises ConfigError for a word that is no verb, with the verb that was probably meant."""
        verb = args[0]
        if self.get_command(ctx, verb) is None and not verb.startswith("-"):
            family = " ".join(["mcpo", *([ctx.info_name] if ctx.parent else [])])
            verbs = self.list_commands(ctx)
            fix = mend(f"{family} {{}} {shlex.join(_typed(args[1:]))}".rstrip(), verb, verbs, f"{family} --help")
            raise ConfigError(f"{family} has no verb '{verb}': {nearest(verb, verbs)}", fix=fix, code="unknown_name")
        return super().resolve_command(ctx, args)


class Verbs(Family):
    """The whole command line. Sets the error style from the raw words, for errors before options are parsed."""

    panels = PANELS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `TyperGroup`; first looks for an old verb."""
        style = ctx.ensure_object(ErrorStyle)
        style.words, style.as_json, style.debug = tuple(args), "--json" in args, "--debug" in args
        check_verb(args)
        return super().parse_args(ctx, args)


Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Presets and settings in Hydra's grammar; commas make a sweep.",
        autocompletion=completing("override"),
    ),
]
SuiteOverrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SUITE|KEY=VALUE",
        help="A suite, such as table1, with settings to change in it; or settings only.",
        autocompletion=completing("suite", "override"),
    ),
]
What = Annotated[
    list[str],
    typer.Argument(
        metavar="SUITE|FILE|RUN_ID [KEY=VALUE]",
        help="A suite or its file, with settings to change in it; or several runs.",
        autocompletion=completing("suite", "override", "run"),
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN_ID", help="A run's id, or the start of it.", autocompletion=completing("run"))
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


class OverridesCommand(TyperCommand):
    """A command that takes overrides; its help ends with the presets and with where settings are explained."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises ConfigError for a file that follows `--config`, and for spaces between the values of a sweep."""
        for at, (word, following) in enumerate(itertools.pairwise([*args, "VALUE"])):
            name, _, value = word.partition("=")
            if name == "--config":
                raise ConfigError(
                    "--config is not an option: a file of settings or of a suite comes first, without it",
                    fix=f"mcpo {ctx.info_name} {value or ('FILE' if following == 'VALUE' else following)}",
                )
            if "=" in word and word.endswith(","):
                parts = itertools.takewhile(lambda text: not re.search("^-|=", text), args[at + 1 :])
                values = "".join(parts).rstrip(",")
                raise ConfigError(
                    f"'{word}' ends with a comma: the values of a sweep have no spaces between them",
                    fix=f"{word}{values}" if values else word.rstrip(","),
                )
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """The help text; reads the presets only when it is printed."""
        return "\n".join([super().get_help(ctx), "", *_presets(), SETTINGS])


def _presets() -> list[str]:
    from mcpo_cli.config import presets

    lines = []
    for group, names in presets.groups().items():
        default = presets.default(group)
        lines.append(f"{group}={', '.join([f'{default} (default)', *(name for name in names if name != default)])}")
    filled = [textwrap.fill(f"  {line}", 79, subsequent_indent=" " * 10, break_on_hyphens=False) for line in lines]
    return ["Presets, group=name:", *filled]
