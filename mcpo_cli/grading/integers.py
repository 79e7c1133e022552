"""Plain integers are compared here, in the calling process; everything else goes to a grader.

Only what no grader could read differently: a sign, digits, and zeros after a point. It says what `math_verify` says.
"""

import re

from mcpo_cli.grading.base import NO_ANSWER, Verdict, hedged
from mcpo_cli.grading.extract import Marked, marked

_PLAIN = re.compile(r"(-?[0-9]{1,15})(?:\.0{1,6})?")


def value(text: str) -> int | None:
    """The integer that `text` plainly is; None if it is anything else, or may be read as anything else."""
    plain = _PLAIN.fullmatch(text)
    return int(plain[1]) if plain else None


def compare(gold: str, response: str, extracted: bool) -> Verdict | None:
    """The verdict where gold and answer are plain integers, or no answer is marked; None for all else."""
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


def different(answers: tuple[str, ...]) -> str:
    """How several answers are listed."""
    return "different answers: " + " | ".join(answers[-4:])
