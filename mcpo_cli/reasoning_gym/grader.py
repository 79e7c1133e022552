"""The verifiers of reasoning-gym (https://github.com/open-thought/reasoning-gym), one per set of problems.

The gold is `{"set", "config", "entry"}` as JSON: the entry has the question, the answer and the verifier's other data.
Many verifiers score partly correct answers; only the full score of 1 is correct here. The answer is the text that the
response marks (see `extract.py`), otherwise the whole response, as with `exact`.

Some verifiers evaluate the answer as Python: `guard.py` limits the texts that reach them, and each answer is judged in
its own fork. That takes about 7 ms of CPU time, so verifiers that only read the answer are called in place.
"""

import json
import re
from functools import cache
from importlib.metadata import version as version_of
from typing import Any

import reasoning_gym

from mcpo_cli.grading.base import Grade, different, hedged
from mcpo_cli.grading.extract import given
from mcpo_cli.grading.spelling import TEXT
from mcpo_cli.reasoning_gym import guard

NAN = re.compile("nan", re.IGNORECASE)
TAKE_NAN = frozenset({"complex_arithmetic", "number_sorting"})
"""Sets whose verifier accepts NaN for any number, because a difference from NaN never exceeds a tolerance."""


def version() -> str:
    """The version of the package, and of its rules."""
    return f"reasoning_gym {version_of('reasoning-gym')} rules 3"


def evaluates(gold: str) -> bool:
    """True if the problem's verifier evaluates as Python; the verifier is made here, before the fork that uses it."""
    problem = json.loads(gold)
    if problem["set"] not in guard.GUARDS:
        return False
    _verifier(problem["set"], json.dumps(problem["config"]))
    return True


def grade(gold: str, response: str, extracted: bool) -> Grade:
    """Correct if the verifier gives the full score; incorrect also if it must not see the answer, or fails on it."""
    problem = json.loads(gold)
    answers = tuple(map(_bare, given(response, extracted)))
    if len(set(answers)) > 1:
        return hedged(answers[-1], different(answers))
    if reason := guard.objection(problem["set"], answers[-1], problem["entry"]):
        return Grade("wrong", answers[-1], f"not evaluated: {reason}")
    if problem["set"] in TAKE_NAN and NAN.search(answers[-1]):
        return Grade("wrong", answers[-1], "not a number")
    verifier = _verifier(problem["set"], json.dumps(problem["config"]))
    try:
        score = verifier.score_answer(answers[-1], problem["entry"])
    except (MemoryError, RecursionError):  # the worker has its own verdicts for these
        raise
    except Exception as error:
        return Grade("wrong", answers[-1], f"the verifier raised {type(error).__name__}: {error}"[:200])
    return Grade("correct" if score == 1.0 else "wrong", answers[-1])


def _bare(answer: str) -> str:
    r"""`heads` for `\text{heads}`."""
    match = TEXT.fullmatch(answer)
    return match[1].strip() if match else answer


@cache
def _verifier(name: str, config: str) -> Any:
    return reasoning_gym.create_dataset(name, size=1, seed=0, **json.loads(config))
