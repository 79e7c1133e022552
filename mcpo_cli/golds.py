"""Gold answers as text: one answer, or several of which each is correct, as a list in JSON.

A list in somebody's data means this in lm-eval, inspect, SQuAD's sets, Skywork-OR1 (there as a text) and the lists of
math-verify. A problem whose answer is several values at once has them in one text: `3, 5`.
"""

import json
from collections.abc import Iterable


def any_of(golds: Iterable[str]) -> str:
    """The gold of a problem of which each of `golds` is an answer; of a single one, its text."""
    different = list(dict.fromkeys(golds))
    return json.dumps(different, ensure_ascii=False) if len(different) > 1 else "".join(different)


def alternatives(gold: str) -> list[str]:
    """The answers of which each is correct: the texts of a list in JSON, or `gold` alone."""
    if gold.lstrip().startswith("["):
        try:
            listed = json.loads(gold)
        except (ValueError, RecursionError):
            return [gold]
        # A list without quotes, such as `[1, 2]`, is an interval or a vector.
        if listed and all(isinstance(text, str) for text in listed):
            return list(listed)
    return [gold]
