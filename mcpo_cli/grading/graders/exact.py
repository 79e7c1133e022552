"""String equality of the answer, or of the whole response if it marks no answer.

White space between tokens is ignored.
"""

from mcpo_cli.grading.base import Verdict, hedged
from mcpo_cli.grading.extract import given
from mcpo_cli.grading.integers import different

INTEGERS = False


def version() -> str:
    """The version of its rules; it uses no library."""
    return "exact 1"


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Correct if the tokens are equal; never unparsable."""
    answers = given(response, extracted)
    if len({tuple(answer.split()) for answer in answers}) > 1:
        return hedged(answers[-1], different(answers))
    return Verdict("correct" if answers[-1].split() == gold.split() else "wrong", answers[-1])
