"""Compares plain integers in the calling process; everything else goes to a grader.

Plain means a sign, digits, and zeros after a point, which no grader reads differently. Agrees with `math_verify`.
"""

import re

from mcpo_cli.grading.base import NO_ANSWER, Verdict, different, hedged
from mcpo_cli.grading.extract import Marked, marked

_PLAIN = re.compile(r"(-?[0-9]{1,15})(?:\.0{1,6})?")


def value(text: str) -> int | None:
    """The integer in `text`; None if `text` is not a plain integer."""
    plain = _PLAIN.fullmatch(text)
    return int(plain[1]) if plain else None


def compare(gold: str, response: str, extracted: bool) -> Verdict | None:
    """The verdict if gold and answers are plain integers, or no answer is marked; else None."""
    if (wanted := value(gold)) is None:
        return None
    found = Marked((response,), ()) if extracted else marked(response)
    if found is None:
        return NO_ANSWER
    values = [value(answer) for answer in found.answers]
    if None in values:
        return None
    if len(set(values)) > 1:
        return hedged(found.last, different(found.answers))
    return Verdict("correct" if values[0] == wanted else "wrong", found.last)
