"""`mcpo compare`: reads its options; compares, writes the files, copies them to MLflow, and prints the verdict."""

import hashlib
import math
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from mcpo_cli.commands import console
from mcpo_cli.commands.reply import Part, Reply
from mcpo_cli.compare import output, page
from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.log import NEEDED, OPTIONAL
from mcpo_cli.compare.subjects import Answer, Subject, judged
from mcpo_cli.compare.upload import upload_comparison
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.home import home
from mcpo_cli.statistics.crossed import Over

COLUMNS = ("model", "sample", *NEEDED, *OPTIONAL)
"""The names in `--columns` for columns of a file."""
NO_FLOOR = "noise floor: not known; several logs of the baseline give it: --arm base='logs/base-*'"
MOST_FLIPS = 20
"""Most problems that `--full` prints; the page has all problems."""
MOST_LINES = 8
"""Most lines of warnings, and of data that would settle an undecided difference, without `--full`."""


@dataclass(frozen=True)
class Destination:
    """Where a comparison goes besides stdout."""

    folder: Path | None = None
    """None: a folder in `reports/compare` of MCPO_HOME. Comparisons of several regimes have a folder each in it."""
    mlflow: bool = False


def reply(subject: Subject, question: Question, destination: Destination, *, gate: str, full: bool) -> Reply:
    """Compare, judge the rules of `gate` if it has any, and write the files.

    Raises:
        ConfigError, MissingRuns: see `subjects.judged`; or the folder cannot be one.
    """
    answers = judged(subject, question, gate)
    identity = (subject, question, gate) if gate else (subject, question)
    errors = [answer.comparison.gate.error for answer in answers if answer.comparison.gate]
    failure = min(filter(None, errors), key=lambda error: error.exit_code, default=None)
    return replace(shown(answers, identity, destination, full=full), error=failure)


def shown(answers: Sequence[Answer], identity: object, destination: Destination, *, full: bool) -> Reply:
    """Write the files of comparisons, log them to MLflow, and say both. identity: equal for equal questions."""
    key = hashlib.sha256(repr((Path.cwd(), identity)).encode()).hexdigest()[:6]
    documents: list[dict[str, Any]] = []
    pages: list[Iterable[Part]] = []
    for index, answer in enumerate(answers):
        name = f"{_slug(answer.title)}-{key}{f'-{index}' if index else ''}"
        folder = home() / "reports" / "compare" / name
        if destination.folder:
            folder = destination.folder / (answer.regime if len(answers) > 1 else "")
        files = output.write(answer, folder, shlex.join(["mcpo", *sys.argv[1:]]))
        document = {**output.document(answer), "files": list(map(str, files))}
        remarks: list[str] = []
        if answer.regraded:
            shares = answer.regraded.shares(answer.question, answer.comparison)
            document["regraded"] = answer.regraded.to_json(shares)
            remarks += answer.regraded.sentences(shares)
        if destination.mlflow or answer.suite:
            upload_comparison(answer, key, files)
        documents.append(document)
        if len(answers) > 1:
            pages.append((console.paragraph(f"regime {answer.regime}:"), ""))
        pages.append(_page(answer, remarks, files, full=full))
    return Reply({"comparisons": documents}, chain.from_iterable(pages))


def _page(answer: Answer, remarks: Sequence[str], files: Sequence[Path], *, full: bool) -> Iterator[Part]:
    """The verdict and its table; with `full`, also the tables of details and the largest flips.

    remarks: on the samples that were graded again.
    """
    comparison = answer.comparison
    main = page.main_grid(comparison)
    yield from [console.paragraph(comparison.gate.sentence)] if comparison.gate else []
    yield from map(console.paragraph, page.sentences(comparison))
    yield from (main, "")
    if comparison.gate:
        yield console.remark(comparison.gate.noise.sentence if comparison.gate.noise else NO_FLOOR)
    warnings = comparison.warnings if full else comparison.warnings[:MOST_LINES]
    yield from map(console.remark, (f"warning: {warning}" for warning in warnings))
    if left := len(comparison.warnings) - len(warnings):
        yield console.remark(f"and {left} more warnings: --full")
    yield from map(console.remark, [*remarks, *page.remarks(comparison, most=None if full else MOST_LINES)])
    for grid in (*page.detail_grids(comparison), page.flips_grid(comparison, MOST_FLIPS)) if full else ():
        if grid.rows:
            yield from ("", console.paragraph(grid.title), "", grid)
    yield from map(console.remark, page.details(comparison) if full else ())
    yield partial(_talk, answer, files, full=full)


def _talk(answer: Answer, files: Sequence[Path], *, full: bool) -> None:
    """Print the files that were written, and the next commands to type."""
    for side in answer.sides:
        if len(side.logs) > 1:
            seeds = page.listed(list(map(str, side.samples["seed"].cat.categories)))
            console.talk(f"{side.name}: {len(side.logs)} logs, taken as training seeds: {seeds}")
    page_file = next(path for path in files if path.suffix == ".html")
    console.talk(f"written: {page_file}, and {len(files) - 1} files beside it: CSV, Markdown, LaTeX, pictures")
    if not full:
        console.talk("next: --full shows what the doubt comes from and which problems changed")
    tables = [scores for arm in answer.comparison.slices[0].arms for scores in arm.scores.values()]
    k = min(scores.most for scores in tables)
    if k > 1 and set(answer.comparison.differences["metric"]) == {"pass@1"}:
        console.talk(f"next: --metric pass@{k} compares pass@{k}")


def question(
    baseline: str,
    metric: Sequence[str],
    at: Sequence[str],
    margin: float | None,
    look: str,
    over: Over | None,
    *,
    lower: bool = False,
) -> Question:
    """The question that options ask.

    Raises:
        ConfigError: the margin or the look is not a valid number.
    """
    if margin is not None and not 0 < margin < math.inf:
        raise ConfigError(f"--margin {margin:g}: must be above 0", fix="--margin 0.01", code="out_of_bounds")
    metrics = tuple(dict.fromkeys(name for words in metric for name in words.split(",") if name))
    return Question(baseline, metrics, tuple(at), margin, _look(look), over=over, lower=lower)


def _look(text: str) -> tuple[int, int] | None:
    """`2/3` as (2, 3)."""
    if not text:
        return None
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--look {text}: must be I/N, the second of three looks being 2/3", fix="--look 2/3")
    return int(parts[0]), int(parts[1])


def arms(words: Sequence[str]) -> dict[str, str]:
    """`NAME=GLOB` words as a mapping.

    Raises:
        ConfigError: a word has another form, or two arms have one name.
    """
    words_of: dict[str, str] = {}
    for word in words:
        name, equals, pattern = word.partition("=")
        if not (name and equals and pattern):
            raise ConfigError(f"--arm {word}: must be NAME=GLOB", fix="--arm grpo='logs/grpo-s*'")
        if name in words_of:
            raise ConfigError(
                f"two sides are named {name!r}", fix="one glob for all seeds of an arm: --arm NAME='PATHS'",
                code="duplicate_name",
            )  # fmt: skip
        words_of[name] = pattern
    return words_of


def columns(text: str) -> Mapping[str, Sequence[str]]:
    """`a=b,c=d,c=e` as a mapping.

    Raises:
        ConfigError: a word has another form, or a name is not in COLUMNS.
    """
    columns_of: dict[str, list[str]] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = word.partition("=")
        if not (equals and value):
            raise ConfigError(f"--columns {word}: must be NAME=COLUMN", fix="--columns correct=exact_match")
        if name not in COLUMNS:
            raise ConfigError(
                f"--columns {word}: {nearest(name, COLUMNS)}", fix=mend(f"--columns {{}}={value}", name, COLUMNS),
                code="unknown_name",
            )  # fmt: skip
        columns_of.setdefault(name, []).append(value)
    return columns_of


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:60]
