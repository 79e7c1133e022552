"""What a data set is: its declaration, what was read of it, and what a run works with."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mcpo_cli.data.prompt import Template

Role = Literal["train", "benchmark"]
INTEGER = re.compile(r"([+-]?)(\d+|\d{1,3}(?:,\d{3})+)(?:\.0*)?")


@dataclass(frozen=True)
class Problem:
    """A prompt and its gold answer, as text. `text` identifies it."""

    text: str
    gold: str

    @property
    def id(self) -> str:
        """12 hex digits of the text's SHA-256: the same wherever the problem stands and however often it is copied."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def number(self) -> int:
        """`id` as an integer below 2^48."""
        return int(self.id, 16)


@dataclass(frozen=True)
class Dataset:
    """A data set as published: where it lies, what its columns mean, how many problems it has.

    repo: on the hub; empty where `file` is a path on this machine, as of a file beside a plug-in.
    revision: full commit hash on the hub, so that nobody ever gets other data under the same name.
    file: path inside the repository, at that revision.
    problem, answer: its columns.
    gold: the answer as text -> the gold answer.
    integer: golds are integers; anything else is an error.
    size: problems that differ, as published; None where the publisher does not say.
    rows: rows as published, where a problem has several.
    grader: judges answers when a model is evaluated on it.
    """

    name: str
    title: str
    role: Role
    repo: str
    revision: str
    file: str
    problem: str
    answer: str
    licence: str
    size: int | None
    rows: int | None = None
    integer: bool = False
    gold: Callable[[str], str] = str.strip
    grader: str = "math_verify"

    @property
    def origin(self) -> str:
        """`hub:REPO@REVISION`, or the file's name."""
        return f"hub:{self.repo}@{self.revision}" if self.repo else Path(self.file).name


@dataclass(frozen=True)
class Defect:
    """A row that cannot be used. `row` counts from 1 (the line, in a file of lines); `count` rows are like it."""

    kind: Literal["empty problem", "empty gold", "non-integer gold"]
    row: int
    count: int
    shown: str


@dataclass
class Reading:
    """All that a file says. problems: text -> gold -> number of rows; first: text -> its first row."""

    source: str
    rows: int = 0
    problems: dict[str, dict[str, int]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)

    def add(self, problem: str, gold: str, row: int, count: int) -> None:
        """Count `count` rows that say so, the first of them at `row`."""
        golds = self.problems.setdefault(problem, {})
        golds[gold] = golds.get(gold, 0) + count
        self.first.setdefault(problem, row)

    @property
    def conflicts(self) -> dict[str, dict[str, int]]:
        """Problems that stand there with more than one gold."""
        return {text: golds for text, golds in self.problems.items() if len(golds) > 1}

    @property
    def agreed(self) -> tuple[Problem, ...]:
        """Each problem with one gold, once, in order of content: a function of what the file says, not of how."""
        found = (Problem(text, next(iter(golds))) for text, golds in self.problems.items() if len(golds) == 1)
        return tuple(sorted(found, key=lambda problem: problem.id))


@dataclass(frozen=True)
class Loaded:
    """Problems ready for use, each once, in order of their ids.

    digest: 12 hex digits over problems and golds; the same for any order of rows and number of copies.
    source: `hub:REPO@REVISION`, or the file's name.
    rows: as read.
    notes: what people should know: copies, problems left out, a size that is not the published one.
    template: around each problem, whatever an evaluation asks for; None where it may choose.
    """

    name: str
    problems: tuple[Problem, ...]
    digest: str
    source: str
    rows: int
    notes: tuple[str, ...] = ()
    grader: str = "math_verify"
    template: Template | None = None


def digest(problems: tuple[Problem, ...]) -> str:
    """12 hex digits over problems and golds. The length before each text keeps their borders apart."""
    content = hashlib.sha256()
    for problem in problems:
        for text in (problem.text, problem.gold):
            encoded = text.encode()
            content.update(b"%d:" % len(encoded) + encoded)
    return content.hexdigest()[:12]


def integer(text: str) -> str | None:
    """`27.0`, `027`, `+27`, `1,027` as `27`, `27`, `27`, `1027`; None where the text is no integer."""
    found = INTEGER.fullmatch(text)
    if found is None:
        return None
    digits = found[2].replace(",", "").lstrip("0") or "0"
    return "-" + digits if found[1] == "-" and digits != "0" else digits
