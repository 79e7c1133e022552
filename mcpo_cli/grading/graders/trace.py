"""Equality of the whole response, for tasks with one right way to write an answer; its last word is the answer.

White space between words is ignored.
"""

from mcpo_cli.grading.base import Verdict

INTEGERS = False


def version() -> str:
    """The version of its rules; it uses no library."""
    return "trace 1"


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Correct if all words are equal; never unparsable."""
    words = response.split()
    return Verdict("correct" if words == gold.split() else "wrong", words[-1] if words else None)
