"""`mcpo compare` for logs of any tool: reads its options; prints, writes and logs the comparison."""

import hashlib
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mcpo_cli.commands import console, publish
from mcpo_cli.commands.reply import Part, Reply
from mcpo_cli.compare import page, readers
from mcpo_cli.compare.comparison import Comparison, Question, compare
from mcpo_cli.compare.log import NEEDED, OPTIONAL, Side
from mcpo_cli.compare.readers import Options
from mcpo_cli.compare.regrade import regrade
from mcpo_cli.compare.sides import sides as sides_of
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.home import home
from mcpo_cli.paths import named

COLUMNS = ("model", "sample", *NEEDED, *OPTIONAL)
"""The names in `--columns` for columns of a file."""

MOST_LINES = 8
"""Most lines on data that would settle an undecided difference, without `--full`."""


@dataclass(frozen=True)
class Asked:
    """The words and options of one comparison, as they were typed."""

    words: Sequence[str]
    arms: Sequence[str] = ()
    """NAME=GLOB."""
    baseline: str = ""
    margin: float | None = None
    k: Sequence[str] = ()
    """Numbers, or lists of them with commas."""
    columns: str = ""
    """NAME=COLUMN,NAME=COLUMN; if a name has several columns, the first that a file has is read."""
    benchmark: str = ""
    reader: str = ""
    maj: Sequence[str] = ()
    """Numbers like those of `k`."""
    look: str = ""
    """I/N."""
    regrade: str = ""
    """Name of a grader."""

    def sides(self) -> list[Side]:
        """The sides to compare.

        Raises:
            ConfigError: an option cannot be read, or see `compare.sides`.
        """
        options = Options(_pairs(self.columns, "--columns", COLUMNS), self.benchmark)
        read = partial(readers.read, options=options, reader=self.reader)
        return sides_of(self.words, _arms(self.arms), read)

    def question(self) -> Question:
        """The question about them.

        Raises:
            ConfigError: a k, the margin or the look is not a valid number.
        """
        if self.margin is not None and not 0 < self.margin < 1:
            raise ConfigError(
                f"--margin {self.margin:g}: must be a share above 0 and below 1",
                fix="--margin 0.01",
                code="out_of_bounds",
            )
        return Question(
            self.baseline,
            _numbers("--k", self.k) or (1,),
            _numbers("--maj", self.maj),
            self.margin,
            look=_look(self.look),
        )

    @property
    def command(self) -> str:
        """The command that was typed."""
        return shlex.join(["mcpo", *sys.argv[1:]])

    @property
    def key(self) -> str:
        """A short name of the sides and the question: equal words in the same folder give equal names."""
        return hashlib.sha256(repr((Path.cwd(), self)).encode()).hexdigest()[:6]


def run(asked: Asked, out: Path | None, *, full: bool, mlflow: bool) -> Reply:
    """Compare and write the files.

    Raises:
        ConfigError: see `Asked` and `compare.comparison.compare`, or `out` cannot be a folder.
    """
    from mcpo_cli.compare import output

    chosen = named(out) if out else None
    question = asked.question()
    sides = asked.sides()
    graded = regrade(sides, asked.regrade) if asked.regrade else None
    if graded:
        sides = list(graded.sides)
    found = compare(sides, question)
    folder = chosen or home() / "reports" / "compare" / f"{_slug(page.title(found))}-{asked.key}"
    files = output.write(found, sides, folder, asked.command, question.margin)
    document = {**output.document(found), "files": list(map(str, files))}
    if graded:
        document["regraded"] = graded.to_json(question, found)
    if mlflow:
        publish.publish_comparison(page.title(found), asked.key, found, files)
    remarks = graded.sentences(question, found) if graded else ()
    after = partial(_talk, found, sides, files, full=full)
    return Reply(document, [*_page(found, full=full, remarks=remarks), after])


def _page(found: Comparison, *, full: bool, remarks: Iterable[str]) -> Iterator[Part]:
    """The verdict and its table; with `full`, also the sources of variance and the largest flips."""
    yield from ("\n".join(page.sentences(found)), page.main_grid(found), "")
    settle = page.settle(found)
    if len(settle) > MOST_LINES and not full:
        settle = [*settle[:MOST_LINES], f"and {len(settle) - MOST_LINES} more lines of this kind: --full"]
    warnings = [f"warning: {warning}" for warning in found.warnings]
    yield from map(console.remark, (*warnings, *remarks, *settle, *page.pairing(found), *page.legend(found)))
    for grid in (page.sources_grid(found), page.flips_grid(found)) if full else ():
        yield from (f"\n{grid.title}", grid)


def _talk(found: Comparison, sides: Sequence[Side], files: Sequence[Path], *, full: bool) -> None:
    """Print the files that were written, and the next commands to type."""
    for side in sides:
        if len(side.logs) > 1:
            seeds = ", ".join(map(str, side.samples["seed"].cat.categories[:8]))
            console.talk(f"{side.name}: {len(side.logs)} logs, taken as training seeds: {seeds}")
    page_file = next(path for path in files if path.suffix == ".html")
    console.talk(f"written: {page_file}, and {len(files) - 1} files beside it: CSV, Markdown, LaTeX, pictures")
    if not full:
        console.talk("next: --full shows what the doubt comes from and which problems changed")
    most = found.curves["k"].max() if len(found.curves) else 1
    if most > 1 and set(found.differences["metric"]) == {"pass@1"}:
        console.talk(f"next: --k {most} compares pass@{most}")


def _numbers(option: str, given: Sequence[str]) -> tuple[int, ...]:
    """The numbers of samples in `1,8`, each once."""
    words = [word for one in given for word in one.split(",") if word]
    if bad := [word for word in words if not word.isdecimal() or int(word) < 1]:
        raise ConfigError(
            f"{option} {bad[0]}: must be a number of samples from 1 on", fix=f"{option} 1,8", code="out_of_bounds"
        )
    return tuple(dict.fromkeys(map(int, words)))


def _look(text: str) -> tuple[int, int] | None:
    """`2/3` as (2, 3)."""
    if not text:
        return None
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--look {text}: must be I/N, the second of three looks being 2/3", fix="--look 2/3")
    return int(parts[0]), int(parts[1])


def _arms(given: Sequence[str]) -> dict[str, str]:
    arms: dict[str, str] = {}
    for word in given:
        name, equals, pattern = word.partition("=")
        if not (name and equals and pattern):
            raise ConfigError(f"--arm {word}: must be NAME=GLOB", fix="--arm grpo='logs/grpo-s*'")
        if name in arms:
            raise ConfigError(
                f"two sides are named {name!r}", fix="one glob for all seeds of an arm: --arm NAME='PATHS'",
                code="duplicate_name",
            )  # fmt: skip
        arms[name] = pattern
    return arms


def _pairs(text: str, option: str, known: Sequence[str]) -> dict[str, list[str]]:
    """`a=b,c=d,c=e` as a mapping; all names must be in `known`."""
    pairs: dict[str, list[str]] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = word.partition("=")
        if not (equals and value):
            raise ConfigError(f"{option} {word}: must be NAME=COLUMN", fix=f"{option} correct=exact_match")
        if name not in known:
            raise ConfigError(
                f"{option} {word}: {nearest(name, known)}", fix=mend(f"{option} {{}}={value}", name, known),
                code="unknown_name",
            )  # fmt: skip
        pairs.setdefault(name, []).append(value)
    return pairs


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:60]
