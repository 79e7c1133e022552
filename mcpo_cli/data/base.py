"""The types of a data set: its declaration, the rows read from it, and the problems that a run uses."""

import hashlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Role = Literal["train", "benchmark"]
HELD_OUT_SHARE = 8
"""One in this many generated problems, chosen by a hash of its text, is held out of training."""
HELD_OUT = "held_out"
"""The name of the benchmark of the problems that are held out of a training file in the same way."""
INTEGER = re.compile(r"([+-]?)(\d+|\d{1,3}(?:,\d{3})+)(?:\.0*)?")


@dataclass(frozen=True)
class Problem:
    """A prompt and its gold answer, as text. `text` identifies it."""

    text: str
    gold: str
    """The answer, or the JSON list of several answers, each of them correct (see `golds`)."""

    @property
    def id(self) -> str:
        """12 hex digits of the text's SHA-256: the same in every data set that contains the problem."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def number(self) -> int:
        """`id` as an integer below 2^48."""
        return int(self.id, 16)


def held_out(problem: Problem) -> bool:
    """True if a generated problem is held out for evaluation, which depends only on its text."""
    return zlib.crc32(problem.text.encode()) % HELD_OUT_SHARE == 0


def after_hashes(answer: str) -> str:
    """The text after the last `####`, as in GSM8K and sets made like it; the whole text if there is none."""
    return answer.rpartition("####")[2].strip()


@dataclass(frozen=True)
class Dataset:
    """The declaration of a published data set."""

    name: str
    title: str
    role: Role
    repo: str = ""
    """Repository on the Hugging Face Hub."""
    revision: str = ""
    """Full commit hash on the hub, so that the same name always means the same data."""
    file: str = ""
    """Path inside the repository, or of a local file."""
    problem: str = "problem"
    """Name of the column with the problem."""
    answer: str = "answer"
    """Name of the column with the answer."""
    licence: str = "unknown"
    size: int | None = None
    """Number of different problems as published; None if the publisher does not state it."""
    rows: int | None = None
    """Number of rows as published, if a problem has several."""
    integer: bool = False
    """True if every gold must be an integer."""
    gold: Callable[[str], str] = after_hashes
    """Turns the text of the answer column into the gold answer."""
    grader: str = "math_verify"
    """Judges answers, in training and where a model is evaluated on the data set."""
    draw: "Callable[[], Reading] | None" = None
    """Generates the problems of a set that has no file."""

    @property
    def origin(self) -> str:
        """`hub:REPO@REVISION`, or the file's name."""
        return f"hub:{self.repo}@{self.revision}" if self.repo else Path(self.file).name


@dataclass(frozen=True)
class Collection:
    """Sets that are generated on demand, more than can be listed."""

    name: str
    """The prefix of its sets' names."""
    member: Callable[[str], Dataset | None]
    """The declaration of the set with a name; None for names outside of the collection."""


@dataclass(frozen=True)
class Defect:
    """A row that cannot be used."""

    kind: Literal["empty problem", "empty gold", "non-integer gold"]
    row: int
    """Number of the first such row, from 1 (the line number in a JSON lines file)."""
    count: int
    """Number of rows with the same content."""
    shown: str


@dataclass
class Reading:
    """The content of a file."""

    source: str
    rows: int = 0
    problems: dict[str, dict[str, int]] = field(default_factory=dict)
    """Problem text -> gold -> number of rows."""
    first: dict[str, int] = field(default_factory=dict)
    """Problem text -> number of its first row."""
    defects: list[Defect] = field(default_factory=list)

    def add(self, problem: str, gold: str, row: int, count: int) -> None:
        """Adds `count` rows with this problem and gold, the first of them at `row`."""
        golds = self.problems.setdefault(problem, {})
        golds[gold] = golds.get(gold, 0) + count
        self.first.setdefault(problem, row)

    @property
    def conflicts(self) -> dict[str, dict[str, int]]:
        """The problems with more than one gold."""
        return {text: golds for text, golds in self.problems.items() if len(golds) > 1}

    @property
    def agreed(self) -> tuple[Problem, ...]:
        """The problems with exactly one gold, by id: independent of row order and copies."""
        agreed = (Problem(text, next(iter(golds))) for text, golds in self.problems.items() if len(golds) == 1)
        return tuple(sorted(agreed, key=lambda problem: problem.id))


@dataclass(frozen=True)
class Loaded:
    """Problems ready for use."""

    name: str
    problems: tuple[Problem, ...]
    """Each problem once, by id."""
    digest: str
    """12 hex digits over problems and golds, independent of row order and copies."""
    source: str
    """`hub:REPO@REVISION`, or the file's name."""
    rows: int
    """Number of rows read, including copies."""
    notes: tuple[str, ...] = ()
    """Facts for the user: copies, problems left out, a size other than the published one."""
    grader: str = "math_verify"
    conflicts: int = 0
    """Number of problems left out because their rows have different golds."""


def digest(problems: tuple[Problem, ...]) -> str:
    """12 hex digits over problems and golds. The length before each text marks where it ends."""
    content = hashlib.sha256()
    for problem in problems:
        for text in (problem.text, problem.gold):
            encoded = text.encode()
            content.update(b"%d:" % len(encoded) + encoded)
    return content.hexdigest()[:12]


def integer(text: str) -> str | None:
    """`27.0`, `027`, `+27`, `1,027` as `27`, `27`, `27`, `1027`; None if the text is not an integer."""
    match = INTEGER.fullmatch(text)
    if match is None:
        return None
    digits = match[2].replace(",", "").lstrip("0") or "0"
    return "-" + digits if match[1] == "-" and digits != "0" else digits


Template = Literal["plain", "boxed", "dapo"]

WRAPPERS: dict[Template, tuple[str, str]] = {
    # Prompts of generated tasks need no template.
    "plain": ("", ""),
    "boxed": ("", "\n\nPlease reason step by step, and put your final answer within \\boxed{}."),
    # From BytedTsinghua-SIA/DAPO-Math-17k and DAPO's AIME 2024 (arXiv 2503.14476).
    "dapo": (
        "Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n",
        '\n\nRemember to put your answer on its own line after "Answer:".',
    ),
}
"""The text before and after the problem. `boxed` is the instruction that Qwen2.5-Math publishes."""


def render(template: Template, problem: str) -> str:
    """The user's turn for `problem`."""
    before, after = WRAPPERS[template]
    return before + problem + after


def strip(text: str) -> str:
    """The problem in a user's turn; text without a template is returned unchanged."""
    for before, after in WRAPPERS.values():
        is_wrapped = bool(before + after) and text.startswith(before) and text.endswith(after)
        if is_wrapped and len(text) >= len(before) + len(after):
            return text[len(before) : len(text) - len(after)]
    return text
