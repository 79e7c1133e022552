"""Equality of the final answer, which follows the last `####` of a response, as in GSM8K (arXiv 2110.14168).

Whatever stands before the marker is reasoning and is not judged. White space between words is ignored.
"""

from mcpo_cli.grading.base import NO_ANSWER, Verdict

INTEGERS = False
MARKER = "####"
"""Begins the final answer."""


def version() -> str:
    """The version of its rules; it uses no library."""
    return "final 1"


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Correct if the words after the marker are the gold's; unparsable without a marker."""
    _, marker, answer = response.rpartition(MARKER)
    if not (marker or extracted):
        return NO_ANSWER
    words = answer.split()
    return Verdict("correct" if words == gold.split() else "wrong", " ".join(words))
