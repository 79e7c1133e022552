"""Every fix that `tests/messages.snap` offers is done, and changes what happens."""

import re
import shlex

import pytest

from tests.cli.conftest import InProcess
from tests.cli.test_messages import AT_ONCE, sections, write_files

pytestmark = pytest.mark.slow
TRAINS = ("train", "ablate", "reproduce", "fork", "probe")
"""Verbs that are run with --dry-run."""
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]{2,}\b(?!=)|\bI/N\b")
"""A word of a fix that stands for something that only the user knows."""
SETTING = re.compile(r"[\w.]+=")


def fixes(section: str) -> list[str]:
    """The alternatives of a section's fix that can be done as they are: settings, options, files, commands."""
    (line, *_) = [*re.findall(r"^  fix: (.*)", section, re.MULTILINE), ""]
    line = re.sub(r"  \(.*\)$", "", line)
    parts = re.split(r",? or:? (?=mcpo |leave |[\w.]+=)|, if ", line)
    doable = re.compile(r"mcpo |[a-z][\w.]*=|'[\w.]+=|--|(leave out|omit) |[\w.]+\.jsonl$")
    return [part.strip() for part in parts if doable.match(part) and not PLACEHOLDER.search(part)]


def mended(command: str, fix: str, message: str) -> list[str]:
    """The words of `command` after the user has done what `fix` says, without training anything."""
    words = done(command, fix, message)
    return [*words, *(["--dry-run"] if words[0] in TRAINS and not {"--dry-run", "--built"} & {*words} else [])]


def done(command: str, fix: str, message: str) -> list[str]:
    """See `mended`; a fix that is a command replaces it."""
    words, wanted = shlex.split(command), shlex.split(fix)
    if wanted[0] == "mcpo":
        return wanted[1:]
    if wanted[0] in ("leave", "omit"):
        gone = tuple(word.partition("=")[0].rstrip(",") for word in wanted[1:] if word != "out")
        return [word for word in words if not word.startswith(gone)]
    wrong = {word.partition("=")[0] for word in wanted} | set(re.findall(r"unknown key '([\w.]+)'", message))
    if wanted[0].startswith("--"):
        at = next((i for i, word in enumerate(words) if word == wanted[0]), len(words))
        return [*words[:at], *wanted, *words[at + len(wanted) :]]
    if not SETTING.match(wanted[0]):
        return [wanted[0] if word in message.split() else word for word in words]
    kept = [word for word in words if word.partition("=")[0].lstrip("-~+") not in wrong and word not in message]
    return [*kept, *wanted]


@pytest.mark.parametrize("first", range(0, len(sections()), AT_ONCE))
def test_every_fix_changes_the_outcome(here: InProcess, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    write_files(here, monkeypatch)
    useless = []
    for section in sections()[first : first + AT_ONCE]:
        command, message = section.splitlines()[0].removeprefix("$ mcpo "), section.replace("HOME", str(here.home))
        for fix in fixes(section):
            words = mended(command, fix, message)
            result = here(*words)
            again = next((line for line in result.stderr.splitlines() if line.startswith("error:")), "")
            if again and (again in message or "usage" in result.stderr.lower()):
                useless.append(f"$ mcpo {command}\n  fix: {fix}\n$ mcpo {shlex.join(words)}\n  {again}")
    assert not useless, "\n".join(useless)
