"""What grading says about an answer."""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

Status = Literal["correct", "wrong", "unevaluated", "unparsable", "timeout", "infra_error"]
"""`unevaluated`: the answer has the right value but leaves its evaluation to the reader, as the sum of k^2 from 1 to 6
for 91; a pool that does not refuse such answers calls them `correct`. `unparsable`: the response marks no answer, or
none that can be read as one. `timeout`: judging it took longer or more memory than allowed. `infra_error`: nothing is
known about the answer, so it is not a score of 0."""

STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Verdict:
    """The outcome of grading one response.

    answer: the text that was judged, as extracted from the response; None where nothing was.
    detail: why, where the status alone does not say ("hedged: ...", "memory", ...).
    """

    status: Status
    answer: str | None = None
    detail: str = ""


NO_ANSWER = Verdict("unparsable", detail="no answer is marked")


def hedged(answer: str, said: str) -> Verdict:
    """What an answer gets that is more than one guess; said: the guesses."""
    return Verdict("wrong", answer, f"hedged: {said}"[:200])


class Grader(Protocol):
    """What a module of `mcpo_cli.grading.graders` has. It is imported in worker processes only, so it may be heavy."""

    INTEGERS: bool
    """Whether plain integers may be compared without it, by `integers.compare`."""

    def version(self) -> str:
        """What identifies its verdicts: libraries and rules."""
        ...

    def grade(self, gold: str, response: str, extracted: bool) -> Verdict:
        """The verdict; extracted: `response` already is the bare answer."""
        ...
