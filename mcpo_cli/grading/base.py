"""Grades of answers, the interface of a grader, and how many gradings may fail."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from mcpo_cli import golds
from mcpo_cli.errors import RunFailed

Status = Literal["correct", "wrong", "unevaluated", "unparsable", "timeout", "infra_error"]
"""`unevaluated`: the answer has the correct value but is not evaluated, such as the sum of k^2 from 1 to 6 for 91; a
pool that does not refuse such answers calls them `correct`. `unparsable`: the response marks no answer, or one that
cannot be parsed. `timeout`: grading exceeded its time or memory limit. `infra_error`: the answer could not be graded,
which is different from a score of 0."""

STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Grade:
    """The outcome of grading one response."""

    status: Status
    answer: str | None = None
    """The judged text, as extracted from the response; None if nothing was extracted."""
    detail: str = ""
    """The reason, if the status alone does not give it ("hedged: ...", "memory", ...)."""
    score: float | None = None
    """The number that a user's function returned; None from any other grader."""

    @property
    def is_graded(self) -> bool:
        """False if the answer could not be graded."""
        return self.status != "infra_error"

    @property
    def reward(self) -> float:
        """The score; without one, 1 for a correct response and 0 for any other."""
        return float(self.status == "correct") if self.score is None else self.score


NO_ANSWER = Grade("unparsable", detail="no answer is marked")


def different(answers: tuple[str, ...]) -> str:
    """Lists the last four of several different answers."""
    return "different answers: " + " | ".join(answers[-4:])


def hedged(answer: str, guesses: str) -> Grade:
    """The grade of an answer with more than one guess; guesses: all of them."""
    return Grade("wrong", answer, f"hedged: {guesses}"[:200])


class Grader(Protocol):
    """The interface of a grader, which is a module or an object. Only worker processes import it, so it may be heavy.

    It may also have `evaluates(gold) -> bool`: True if grading against a gold evaluates texts as programs. Then each
    answer is graded in its own fork; this function loads its requirements before the fork.
    """

    def version(self) -> str:
        """Identifies the libraries and rules that its grades depend on."""
        ...

    def grade(self, gold: str, response: str, extracted: bool) -> Grade:
        """The grade; extracted: whether `response` is already the bare answer."""
        ...


PREFERRED: tuple[Status, ...] = ("correct", "unevaluated", "infra_error", "timeout", "wrong", "unparsable")
"""Of the grades of one answer by several golds, the first in this order counts."""


@dataclass(frozen=True)
class AnyGold:
    """A grader for problems with several golds: an answer is correct by one gold, or if it states all golds."""

    one: Grader

    def version(self) -> str:
        """See `Grader`."""
        return self.one.version()

    def grade(self, gold: str, response: str, extracted: bool) -> Grade:
        """See `Grader`."""
        texts = golds.alternatives(gold)
        candidates = [*texts, ", ".join(texts)] if len(texts) > 1 else texts
        grades = [self.one.grade(text, response, extracted) for text in candidates]
        return min(grades, key=lambda grade: PREFERRED.index(grade.status))

    def evaluates(self, gold: str) -> bool:
        """See `Grader`."""
        evaluates: Callable[[str], bool] | None = getattr(self.one, "evaluates", None)
        return evaluates is not None and any(map(evaluates, golds.alternatives(gold)))


INFRA_SHARE, INFRA_LEAST = 0.01, 3
"""Too many gradings failed if they exceed both this share of all gradings and this number."""


def check(grades: Sequence[Grade], data: Mapping[str, Any] | None = None, *, function: bool = False) -> None:
    """Check that few enough gradings failed for a score, which leaves out and reports the grades `infra_error`.

    Args:
        data: partial results to attach to the error.
        function: True if a user's function may have failed, whose first error already raises.

    Raises:
        RunFailed: too many gradings failed for reasons other than the answers.
    """
    failures = [grade.detail for grade in grades if grade.status == "infra_error"]
    if failures and function:
        raise RunFailed(
            f"a function failed: {failures[0]}",
            fix="correct the function, then repeat the command: a changed function starts new runs",
            data=data,
            code="bad_function",
        )
    if len(failures) > max(INFRA_LEAST, INFRA_SHARE * len(grades)):
        raise RunFailed(
            f"{len(failures)} of {len(grades)} answers could not be graded, too many for a valid score ({failures[0]})",
            fix="fix that, then rerun the same command: all samples and training so far are kept",
            data=data,
            code="ungraded",
        )
