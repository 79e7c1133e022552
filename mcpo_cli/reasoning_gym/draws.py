"""Draws problems of reasoning-gym: `python -m mcpo_cli.reasoning_gym.draws`, started by `sets.py`.

Standard input has `{"set", "config", "count"}`; standard output gets the entries as a list, or a complaint as a string.
"""

import json
import os
import sys
from dataclasses import fields
from itertools import islice
from typing import Any

from mcpo_cli.errors import nearest

SEED = 0
"""reasoning-gym draws item i of a set with the seed SEED + i."""
ATTEMPTS = 4
"""Items drawn for each different question that is wanted, before a set counts as exhausted."""
TRIED = 20
"""Entries on which the verifier is tried."""


class Unusable(Exception):
    """A set cannot be drawn, for the reason in the message."""


def entries(name: str, config: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """At most `count` entries with different questions, in the form that they have after a round trip through JSON.

    Raises:
        Unusable: unknown set or option, or a verifier without verdicts.
    """
    from reasoning_gym.factory import DATASETS, create_dataset

    if name not in DATASETS:
        raise Unusable(f"unknown set: {nearest(name, sorted(DATASETS))}")
    options = sorted({field.name for field in fields(DATASETS[name][1])} - {"seed", "size"})
    for key in config:
        if key not in options:
            raise Unusable(f"unknown option '{key}': {nearest(key, options)}")
    try:
        dataset = create_dataset(name, seed=SEED, size=ATTEMPTS * count, **config)
    except (AssertionError, TypeError, ValueError) as error:  # the errors of its validation
        raise Unusable(f"reasoning-gym refuses {config}: {error}") from error
    entry_of: dict[str, dict[str, Any]] = {}
    for i in range(ATTEMPTS * count):
        if len(entry_of) == count:
            break
        entry = json.loads(json.dumps(dataset[i]))
        entry_of.setdefault(entry["question"].strip(), entry)
    for entry in islice(entry_of.values(), TRIED):
        if entry["answer"] is not None and dataset.score_answer(entry["answer"], entry) != 1.0:
            raise Unusable("its verifier refuses its own answer")
        if dataset.score_answer("?", entry) == 1.0:
            raise Unusable("its verifier takes any answer")
        if dataset.score_answer("0", entry) == 1.0 and str(entry["answer"]).strip("0.+-i "):
            raise Unusable(f"its verifier takes 0 for {entry['answer']}")
    return list(entry_of.values())


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keeps the package's output out of the answer
    try:
        answer: list[dict[str, Any]] | str = entries(request["set"], request["config"], request["count"])
    except Unusable as error:
        answer = str(error)
    with answers:
        json.dump(answer, answers)


if __name__ == "__main__":
    main()
