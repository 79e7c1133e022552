"""The rollouts that a run kept as text, of the first prompt groups of each evaluated step (`compute.sample_groups`)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from mcpo_cli.runs.journal import Journal

LONGEST = 400
"""Most characters of a response that is shown. A longer one lacks its middle, because the answer is at its end."""


@dataclass(frozen=True)
class KeptGroup:
    """The rollouts of one prompt at one global step."""

    step: int
    prompt: str
    gold: str
    right: tuple[str, ...]
    """The correct responses; equal ones are repeated."""
    wrong: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """The share of correct responses."""
        return len(self.right) / (len(self.right) + len(self.wrong))

    def has(self, text: str) -> bool:
        """True if the prompt or a response contains `text`."""
        return any(text in content for content in (self.prompt, *self.right, *self.wrong))


def groups(journal: Journal) -> Iterator[KeptGroup]:
    """The groups that a run kept, newest step first; each step's file is read only when it is needed."""
    for path in reversed(journal.files("samples").values()):
        for _, rows in groupby(journal.read(path), key=lambda row: (row["step"], row["prompt"])):
            yield _group(list(rows))


def _group(rows: Sequence[Mapping[str, Any]]) -> KeptGroup:
    responses = {
        correct: tuple(row["response"] for row in rows if row["correct"] is correct) for correct in (True, False)
    }
    first = rows[0]
    return KeptGroup(first["step"], first["prompt"], first["gold"], responses[True], responses[False])


def counted(responses: Sequence[str]) -> list[tuple[int, str]]:
    """The count and text of each distinct response, shortened to LONGEST; the most frequent first."""
    return [(count, _shortened(response)) for response, count in Counter(responses).most_common()]


def _shortened(response: str) -> str:
    half = LONGEST // 2
    return response if len(response) <= LONGEST else f"{response[:half]} ... {response[-half:]}"
