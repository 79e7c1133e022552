"""Errors in the words of a command that typer finds: an unknown option, a missing argument, a wrong value."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import typer

from mcpo_cli.errors import ConfigError, similar

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""The base class of usage errors in the click that typer bundles; typer does not export it."""
LISTED: Mapping[str, str] = {
    "RUN_ID": "mcpo runs list",
    "KIND": "mcpo components list",
    "PROBE": "mcpo components list probe",
}
"""The command that lists what an argument can be."""


def as_error(usage: Any, words: Sequence[str]) -> ConfigError:
    """A usage error of typer with the command that avoids it.

    words: all words after `mcpo`, as they were typed.
    """
    verb = verb_of(usage.ctx)
    option = getattr(usage, "option_name", None)
    if option and usage.__class__.__name__ == "NoSuchOption":
        return _no_option(usage.ctx, verb, option, words)
    parameter = getattr(usage, "param", None)
    fix = f"{verb} --help"
    if usage.__class__.__name__ == "MissingParameter" and parameter is not None:
        arguments = [slot for slot in usage.ctx.command.params if slot.param_type_name == "argument" and slot.required]
        names = " ".join(argument.metavar or str(argument.name).upper() for argument in arguments)
        return ConfigError(f"{verb} needs {names}", fix=LISTED.get((parameter.metavar or "").rstrip("."), fix))
    message = usage.format_message().rstrip(".").replace("Value error, ", "")
    return ConfigError(f"{message[:1].lower()}{message[1:]}", fix=fix)


def verb_of(context: Any) -> str:
    """The command of a context, such as `mcpo runs list`, however the program was started."""
    names = []
    while context.parent:
        names.append(context.info_name)
        context = context.parent
    return " ".join(["mcpo", *reversed(names)])


def _no_option(context: Any, verb: str, option: str, words: Sequence[str]) -> ConfigError:
    """An option that a verb does not have: the only verb that has it, or else the nearest option or setting."""
    options = _options(context.command)
    settings = [f"--{name}" for name in _settings(context.command)]
    typed = [word for word in words if word not in ("--json", "--debug")]
    verbs = _with_option(context.find_root(), option)
    if verbs and (moved := _after_verb(context, option, words)):
        return ConfigError(f"'{option}' comes after the verb that has it", fix=moved, code="unknown_name")
    key = option.removeprefix("--").replace("-", "_")
    of_group = next((name for name in settings if name.rpartition(".")[2] == key), "")
    guess = option if option in settings else of_group or similar(option, [*options, *settings])
    message = f"{verb} has no option '{option}'"
    if option in settings:
        message = f"{option} is not an option but a setting"
    elif len(verbs) == 1 and context.parent and not (of_group or _is_slip(option, guess)):
        command = shlex.join([*verbs[0].split(), *typed[len(verb.split()) - 1 :]])
        fix = command if _family(verbs[0]) == _family(verb) else f"{verb} --help"
        return ConfigError(f"{message}: {verbs[0]} has it", fix=fix, code="unknown_name")
    elif verbs and not guess:
        message += f": {', '.join(verbs)} {'has' if len(verbs) == 1 else 'have'} it"
    elif guess:
        message += f": did you mean '{guess.removeprefix('--') if guess in settings else guess}'?"
    at = _place(option, typed)
    if not guess or at is None:
        return ConfigError(message, fix=f"{verb} --help", code="unknown_name")
    (name, equals, value), after = typed[at].partition("="), typed[at + 1 :]
    name = guess
    if guess in settings:
        name, equals = guess.removeprefix("--"), "="
        if not value:
            value, after = (after[0], after[1:]) if after and not after[0].startswith("-") else ("VALUE", after)
    return ConfigError(
        message, fix=shlex.join(["mcpo", *typed[:at], name + equals + value, *after]), code="unknown_name"
    )


def _after_verb(context: Any, option: str, words: Sequence[str]) -> str:
    """The command with an option that stands before the verb, such as `mcpo --debug train`, at its end; else empty."""
    family = context.command.list_commands(context) if hasattr(context.command, "list_commands") else ()
    at = _place(option, words)
    verb = next((place for place, word in enumerate(words) if at is not None and place > at and word in family), None)
    return "" if verb is None else shlex.join(["mcpo", *words[:at], *words[verb:], *words[at:verb]])


def _place(option: str, words: Sequence[str]) -> int | None:
    """The index of an option, also of `--option=value`; None if it is not among the words."""
    return next((place for place, word in enumerate(words) if word.partition("=")[0] == option), None)


def _family(verb: str) -> str:
    """The words of a verb before its last word: verbs of one family take similar arguments."""
    return verb.rpartition(" ")[0]


def _is_slip(option: str, guess: str) -> bool:
    """True if an option lacks, or adds, only the end of the option that was probably meant: `--step`, `--steps`."""
    return bool(guess) and (option.startswith(guess) or guess.startswith(option))


def _with_option(root: Any, option: str) -> list[str]:
    """The verbs that have an option, in the order in which the help lists them."""

    def verbs(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        for verb in command.list_commands(root) if hasattr(command, "list_commands") else ():
            yield from verbs(command.get_command(root, verb), f"{name} {verb}")
        yield name, command

    return [name for name, command in verbs(root.command, "mcpo") if option in _options(command)]


def _options(command: Any) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts if name.startswith("--")]


def _settings(command: Any) -> Collection[str]:
    """The settings that a verb takes as words `key=value`."""
    arguments = [parameter for parameter in command.params if parameter.opts[0][0] != "-"]
    if not any("KEY=VALUE" in (argument.metavar or "") for argument in arguments):
        return ()
    if command.name == "evaluate":
        from mcpo_cli.config.evaluation import Evaluation

        return [field.name for field in fields(Evaluation)]
    from mcpo_cli.config.presets import groups, keys
    from mcpo_cli.config.words import SHORT

    return [*keys(), *groups(), *SHORT]
