"""Whether a response is a palindrome of all the gold's letters; any such palindrome is right.

The rule of `palindrome_generation` in reasoning-gym (https://github.com/open-thought/reasoning-gym). White space
between letters is ignored.
"""

from mcpo_cli.grading.base import Verdict

INTEGERS = False


def version() -> str:
    """The version of its rules; it uses no library."""
    return "palindrome 1"


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Correct if the response reads the same in both directions and has each letter as often as the gold has it."""
    letters = "".join(response.split())
    right = letters == letters[::-1] and sorted(letters) == sorted("".join(gold.split()))
    return Verdict("correct" if right else "wrong", letters)
