"""Equality of the number after the last `answer is` or `####` of a response: `... The answer is 12.`

The number ends the response, but for white space and one full stop. It has at most 18 ASCII digits, with or without
commas between groups of three, an optional minus sign before them, and an optional dollar sign before that; a colon
may come first (`The answer is: $1,200.`). Anything else after the marker is unparsable, as in `12 apples`, `12 or 13`
and `6 + 6`; a response without a marker is unparsable, too. Upper and lower case are equal. Reasoning before the
marker is not judged.
"""

import re

from mcpo_cli.grading.base import NO_ANSWER, Verdict

INTEGERS = False
MARKERS = ("answer is", "####")
_LONGEST = 40
"""Characters after the marker; more cannot be one number."""
_NUMBER = re.compile(r":?\s*\$?(-?(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18}))\.?")


def version() -> str:
    """The version of its rules; it uses no library."""
    return "answer_is 1"


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Correct if the number is the gold's; unparsable without a marker, or without one number after it."""
    text = response.lower()
    ends = [at + len(marker) for marker in MARKERS if (at := text.rfind(marker)) >= 0]
    if not (ends or extracted):
        return NO_ANSWER
    answer = text[max(ends, default=0) :].strip()
    found = _NUMBER.fullmatch(answer) if len(answer) <= _LONGEST else None
    if found is None:
        return Verdict("unparsable", answer[:_LONGEST], "more or less than one number follows the marker")
    number = found[1].replace(",", "")
    return Verdict("correct" if int(number) == int(gold) else "wrong", number)
