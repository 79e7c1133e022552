"""Words that people know from other tools: taken where their meaning is clear, else answered with mcpo's word."""

from collections.abc import Sequence

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
"""A verb of habit and the words that it stands for."""
REFUSED = {
    "resume": ("the command that trained a run continues it: `mcpo runs show RUN_ID` names it", "mcpo runs list"),
    "eval": ("the verb is evaluate", "mcpo evaluate --help"),
    "run": ("the verb is train", "mcpo train --help"),
}
"""Verbs of habit that stand for none, with what is done instead and its fix."""


def meant(words: Sequence[str]) -> list[str]:
    """The words of a command line with a verb of habit replaced.

    Raises:
        ConfigError: mcpo has no such verb; the message says what is done instead.
    """
    first, rest = "".join(words[:1]), list(words[1:])
    if first in REFUSED and not {"--help", "-h"} & set(rest):
        instead, fix = REFUSED[first]
        raise ConfigError(f"mcpo has no verb '{first}': {instead}", fix=fix, code="unknown_name")
    return [*MEANT[first], *rest] if first in MEANT else list(words)
