"""Runs the checks of a kit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class CheckOutcome:
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    """The reason why it failed, empty where it passed."""
    checked: bool = True
    """False if an earlier check failed for the same reason, so that the result of this one is unknown."""


def named(*checks: Callable[[T], None]) -> dict[str, Callable[[T], None]]:
    """Each check by its name in words; its docstring states the requirement."""
    return {one.__name__.replace("_", " "): one for one in checks}


def outcomes(checks: Mapping[str, Callable[[T], None]], subject: T) -> list[CheckOutcome]:
    """Every check on `subject`, in order; a failed check does not stop the others."""
    found, causes = list[CheckOutcome](), dict[str, str]()
    for name, one in checks.items():
        outcome = _outcome(name, one, subject)
        if not outcome.passed and (first := causes.setdefault(outcome.detail, name)) != name:
            outcome = CheckOutcome(name, False, f"not checked, for the same reason as '{first}'", checked=False)
        found.append(outcome)
    return found


def _outcome(name: str, one: Callable[[T], None], subject: T) -> CheckOutcome:
    try:
        one(subject)
    except Exception as error:  # the code under test may raise anything; any error is a finding
        said = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        return CheckOutcome(name, False, said.strip())
    return CheckOutcome(name, True, "")
