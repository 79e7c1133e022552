r"""The verdicts of verl's string matcher for DAPO (`verl/utils/reward_score/math_dapo.py`), for comparison.

Reimplemented from its behaviour (https://github.com/volcengine/verl, Apache-2.0), with its quirks: only the last 300
characters of a response count, the last `Answer:` in them marks the answer (a `\boxed{}` does not), both sides are
normalised as for Minerva (arXiv 2206.14858, appendix D.1), and the strings are compared: `\frac{1}{2}` is not `0.5`.
"""

import re

from mcpo_cli.grading.base import NO_ANSWER, Verdict

INTEGERS = False

_TAIL = 300
_ANSWER = re.compile(r"(?i)answer\s*:\s*([^\n]+)")
_REPLACED = {
    "an ": "",
    "a ": "",
    ".$": "$",
    r"\$": "",
    r"\ ": "",
    " ": "",
    "mbox": "text",
    r",\text{and}": ",",
    r"\text{and}": ",",
    r"\text{m}": r"\text{}",
}
"""Applied in this order: a replacement can enable the next one."""
_UNITS = (
    "square ways integers dollars mph inches hours km units \\ldots sue points feet minutes digits cents degrees cm gm "
    "pounds meters meals edges students childrentickets multiples"
)
_DROPPED = (
    *_UNITS.split(),
    r"\text{s}",
    r"\text{.}",
    "\\text{\ns}",
    r"\text{}^2",
    r"\text{}^3",
    "\\text{\n}",
    r"\text{}",
    r"\mathrm{th}",
    r"^\circ",
    r"^{\circ}",
    r"\;",
    r",\!",
    "{,}",
    '"',
    r"\dots",
)
_UNWRAPPED = (r"\\text\{(.*?)\}", r"\\textbf\{(.*?)\}", r"\\overline\{(.*?)\}", r"\\boxed\{(.*)\}")


def version() -> str:
    """The verl commit whose behaviour it reproduces, and the version of its rules."""
    return "math_dapo verl b178a3cd rules 1"


def normal(answer: str) -> str:
    """The normal form in which answers are compared."""
    answer = answer.rpartition("=")[2]
    for old, new in _REPLACED.items():
        answer = answer.replace(old, new)
    for dropped in _DROPPED:
        answer = answer.replace(dropped, "")
    answer = re.sub(r".*?\$(.*?)\$.*", r"$\1$", answer)
    for wrapper in _UNWRAPPED:
        answer = re.sub(wrapper, r"\1", answer)
    answer = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", answer)
    answer = re.sub(r"sqrt([^{])", r"sqrt{\1}", answer)
    answer = answer.replace("$", "")
    digits = answer.replace(",", "")
    return (digits if digits.isdigit() else answer).strip()


def grade(gold: str, response: str, extracted: bool) -> Verdict:
    """Correct if both have the same normal form. Without an `Answer:`, unparsable (verl says wrong)."""
    answers = [response] if extracted else _ANSWER.findall(response[-_TAIL:])
    if not answers:
        return NO_ANSWER
    return Verdict("correct" if normal(answers[-1]) == normal(gold) else "wrong", answers[-1].strip())
