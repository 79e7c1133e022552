"""Equality of an integer, which is the whole response or follows its last `=`: `7` and `3 + 4 = 7`.

An integer is an optional minus sign and at most 18 ASCII digits without leading zeros. White space around it and one
final full stop (`7.`) are ignored, because sentences end with one. Anything else is unparsable: `+7`, `7.0`, `$7$`,
`7 apples`, `07`, digits of other scripts. Nothing is evaluated: `3 + 4` is no answer to itself.
"""

import re

from mcpo_cli.grading.base import Verdict

INTEGERS = False
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,17}))\.?")


def version() -> str:
    """The version of its rules; it uses no library."""
    return "integer 1"


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Correct if the integer is the gold's; unparsable if there is none."""
    answer = response.rpartition("=")[2].strip()
    found = _INTEGER.fullmatch(answer)
    if found is None:
        return Verdict("unparsable", detail="no integer is the whole response or follows its last =")
    return Verdict("correct" if int(found[1]) == int(gold) else "wrong", found[1])
