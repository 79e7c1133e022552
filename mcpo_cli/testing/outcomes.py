"""Runs the checks of a kit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mcpo_cli import plugins, settings
from mcpo_cli.errors import McpoError

T = TypeVar("T")


@dataclass(frozen=True)
class CheckOutcome:
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    """The reason why it failed, empty where it passed."""
    demand: str
    """The requirement, in a sentence."""
    checked: bool = True
    """False if an earlier check failed for the same reason, so that the result of this one is unknown."""


def named(*checks: Callable[[T], None]) -> dict[str, Callable[[T], None]]:
    """Each check by its name in words; its docstring states the requirement."""
    return {check.__name__.replace("_", " "): check for check in checks}


def outcomes(checks: Mapping[str, Callable[[T], None]], subject: T) -> list[CheckOutcome]:
    """Every check on `subject`, in order; a failed check does not stop the others."""
    results, causes = list[CheckOutcome](), dict[str, str]()
    for name, check in checks.items():
        detail, demand = _finding(check, subject), settings.summary(check.__doc__ or "")
        first = causes.setdefault(detail, name) if detail else name
        if first != name:
            detail = f"not checked, for the same reason as '{first}'"
        results.append(CheckOutcome(name, not detail, detail, demand, checked=first == name))
    return results


def _finding(check: Callable[[T], None], subject: T) -> str:
    """What is wrong; empty if nothing is."""
    try:
        check(subject)
    except McpoError as error:
        return str(error)
    except Exception as error:  # the code under test may raise anything; any error is a finding
        is_sentence = isinstance(error, AssertionError) and not plugins.raised_at(error)
        return (str(error).strip() if is_sentence else plugins.described(error)) or "it fails"
    return ""
