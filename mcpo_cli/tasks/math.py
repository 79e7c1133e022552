r"""The paper's task: existing language models solve published math problems, or problems of your own files.

`task.data` and `task.benchmarks` name data sets (`mcpo components list data`) or files: `task.data=./problems.jsonl
task.benchmarks=[./held_out.jsonl]`. A file has a column `problem` or `question` and a column `answer`, `final_answer`
or `ground_truth`, or verl's schema. Its tier has the file's name without the suffix, and its content is part of the
run's identity. A problem that both files have is left out of training. `task.benchmarks=[held_out]` holds one in eight
problems of the training file out of it, chosen by a hash of the text.

Worked examples (`task.examples`) end as `task.prompt` asks: in `Answer: 7`, in `\boxed{7}`, or in `The answer is 7.`
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from mcpo_cli import data as datasets
from mcpo_cli import grading, paths
from mcpo_cli.data import files
from mcpo_cli.data.base import HELD_OUT, HELD_OUT_SHARE, Dataset, Loaded, Problem, Reading, Role, held_out, render
from mcpo_cli.errors import ConfigError, bad_data, nearest, no_room
from mcpo_cli.grading import functions
from mcpo_cli.records import DataSource
from mcpo_cli.settings import identity, later, runtime
from mcpo_cli.tasks import gold_check
from mcpo_cli.tasks.base import Limits, Tokens
from mcpo_cli.tasks.drawn import from_pool
from mcpo_cli.tasks.text import QUESTION, Example, TextTask, fitting

PROMPT_TOKENS = 200
"""Mean tokens of a prompt with its template, assumed for estimates."""
RESPONSE_SHARE = 0.25
"""Mean response length as a share of train.max_response, assumed for estimates."""
ENDINGS = {"dapo": "\n\nAnswer: {}", "boxed": " The answer is $\\boxed{{{}}}$.", "plain": " The answer is {}."}
"""The end of a worked example's response, by `task.prompt`."""
WORKED = (
    (
        "A train covers 180 km in 3 hours. How many km does it cover in 5 hours at the same speed?",
        "The speed is 180 / 3 = 60 km per hour. In 5 hours the train covers 60 * 5 = 300 km.",
        300,
    ),
    (
        "The sum of two numbers is 20 and their difference is 6. What is the larger number?",
        "Twice the larger number is the sum plus the difference: 20 + 6 = 26. Half of that is 13.",
        13,
    ),
    (
        "How many two-digit numbers are multiples of 7?",
        "The largest multiple of 7 below 100 is 98 = 7 * 14, so 14 multiples are below 100. One of them, 7, has one "
        "digit. That leaves 14 - 1 = 13.",
        13,
    ),
    (
        "What is the value of $x$ if $3x + 5 = 26$?",
        "Subtracting 5 gives $3x = 21$. Dividing by 3 gives $x = 7$.",
        7,
    ),
)
"""Question, reasoning and answer of each worked example."""


@dataclass(frozen=True)
class Math(TextTask):
    """Published data sets (`mcpo components list data`), or files of your own."""

    name = "math"
    grader = "math_verify"
    reasons = True

    data: str = identity("dapo_math_17k")
    """The training set: the name of a data set, or a file."""
    benchmarks: tuple[str, ...] = identity(("aime24", "aime25", "amc23"))
    """The held-out sets, by name or as files; each is a tier and evaluated whole. `held_out` is one in
    eight problems of a training file."""
    prompt: Literal["dapo", "boxed", "plain"] = identity("dapo")
    """The template around a problem."""
    data_path: str = runtime("")
    """A file, or a folder with one file per data set, `<name>.jsonl` or `.parquet`; empty loads from the
    Hugging Face Hub."""
    graded_by: str = later("")
    """What decides whether an answer to a problem of your own files is correct: a grader (`mcpo grade --help`), or a
    function of yours, FILE.py:FUNCTION; empty takes math_verify."""
    digests: tuple[str, ...] = later(())
    """`SHA256:COUNT` (12 digits, number of problems) of each file that `data` and `benchmarks` name; filled in when the
    run is planned."""

    def __post_init__(self) -> None:
        """Reads the digests of files, unless a record of the run has them."""
        files = self._files()
        if len(files) != len(self.digests) and files:
            digests = (f"{_sha256(dataset.file)}:{len(datasets.load(dataset).problems)}" for dataset in files)
            object.__setattr__(self, "digests", tuple(digests))

    @property
    def published(self) -> tuple[str, ...]:
        return self.source, *(tier.name for tier in self.held_out_sets)

    @property
    def is_here(self) -> bool:
        """See `Task`; true for files. Published sets may have to be fetched."""
        return all(map(self._is_own, (self.data, *self.benchmarks)))

    @property
    def title(self) -> str:
        return self.training_set.title

    @property
    def source(self) -> str:
        return self.training_set.name if files.is_name(self.data) else self.data

    @property
    def training_set(self) -> Dataset:
        """The declaration of `data`."""
        return self._declared(self.data, "train")

    @property
    def held_out_sets(self) -> list[Dataset]:
        """The declarations of `benchmarks`."""
        return [self._declared(name, "benchmark") for name in self.benchmarks]

    @property
    def own_template(self) -> str:
        """See `TextTask`; the template that `prompt` names."""
        template = render(self.prompt, QUESTION)
        return f"Problem: {template}\nSolution:" if self.is_plain else template

    @property
    def own_stops(self) -> tuple[str, ...]:
        return ("\nProblem:",) if self.is_plain else ()

    @property
    def worked(self) -> list[Example]:
        before, ending = " " if self.is_plain else "", ENDINGS[self.prompt]
        return [(question, before + reasoning + ending.format(answer)) for question, reasoning, answer in WORKED]

    @property
    def file(self) -> Path | None:
        """`data_path` as a path; None means the Hugging Face Hub."""
        return paths.named(self.data_path) if self.data_path else None

    def grader_of(self, source: str) -> str:
        """See `Task`; the grader that the data set declares. Any other name stands for problems of the training set."""
        tiers = {tier.name: tier for tier in self.held_out_sets}
        return tiers.get(source, self.training_set).grader

    def problems(self, train: Limits, tokens: Tokens) -> "Published":
        """See `Task`; the files are read on first use."""
        return Published(self, train, tokens)

    def tier_sizes(self, count: int) -> dict[str, int]:
        """See `Task`; the sizes as published, or of the files."""
        return {tier.name: tier.size or self._recorded(tier)[1] for tier in self.held_out_sets}

    def expected_tokens(self, max_response: int) -> tuple[float, float]:
        """See `Task`; assumed, not measured."""
        return PROMPT_TOKENS, RESPONSE_SHARE * max_response

    def question_tokens(self) -> float:
        """See `Task`; assumed, not measured."""
        return PROMPT_TOKENS

    def contradictions(self, train: Limits) -> Iterator[tuple[str, str]]:
        sets = datasets.names("train")
        if not (datasets.is_dataset(self.data, "train") or files.is_name(self.data)):
            yield f"task.data={self.data} is not a training set: {nearest(self.data, sets)}", f"task.data={sets[0]}"
        benchmarks = datasets.names("benchmark")
        if self.graded_by and not (functions.is_function(self.graded_by) or self.graded_by in grading.registry()):
            yield f"task.graded_by: '{self.graded_by}' is not a grader", "task.graded_by=FILE.py:FUNCTION"
        if self.graded_by and not self._files():
            yield "task.graded_by has no effect: published sets keep their graders", "task.graded_by=''"
        for name in self.benchmarks:
            if not (datasets.is_dataset(name, "benchmark") or self._is_own(name)):
                yield (
                    f"task.benchmarks: '{name}' is not a benchmark: {nearest(name, benchmarks)}",
                    "mcpo components list data",
                )
        if len(set(self.benchmarks)) < max(1, len(self.benchmarks)):
            problem = "is empty" if not self.benchmarks else "repeats a benchmark"
            yield f"task.benchmarks={list(self.benchmarks)} {problem}", "task.benchmarks=[aime24,aime25,amc23]"
        elif self._files() and len(set(self.published)) < len(self.published):
            yield (
                f"task.data and task.benchmarks share a name: {', '.join(self.published)}",
                "rename a file: a data set is called as its file is",
            )
        if self.template and self.prompt != Math.prompt:
            yield (
                f"task.prompt={self.prompt} has no effect with task.template",
                f"task.template='', or task.prompt={Math.prompt}",
            )
        yield from super().contradictions(train)

    def cautions(self) -> Iterator[str]:
        """See `Task`; about files."""
        for dataset in self._files():
            if caution := gold_check.caution(dataset, self.load(dataset)):
                yield caution
        if files.is_name(self.data):
            training = self.load(self.training_set)
            of_files = [tier for tier in self.held_out_sets if not tier.draw]
            readable = [tier for tier in of_files if not tier.repo or self.file or files.cached(tier)]
            if left := _left_out(training, map(self.load, readable)):
                yield f"{training.source}: problems are left out of training: {left}"

    def check(self) -> None:
        """Checks that the training file is available and that the benchmarks are readable and complete."""
        if files.is_name(self.data):
            self.load(self.training_set)
        else:
            datasets.fetch(self.training_set, self.file)
        for tier in self.held_out_sets:
            self.load(tier)

    def load(self, dataset: Dataset) -> Loaded:
        """All problems of one of the task's data sets.

        Raises:
            ConfigError: the data cannot be read, a benchmark is not complete, or a file is not the one that the run was
                planned with.
        """
        if digest := self._recorded(dataset)[0]:
            if _sha256(dataset.file) != digest:
                raise ConfigError(
                    f"{dataset.file} has changed since the run was planned",
                    fix="repeat the command that planned the run",
                    code="changed",
                )
            return datasets.load(dataset)
        return datasets.load(dataset, self.file) if dataset.role == "train" else complete(dataset.name, self.file)

    def _files(self) -> list[Dataset]:
        """The files among `data` and `benchmarks`."""
        entries: list[tuple[str, Role]] = [(self.data, "train"), *((name, "benchmark") for name in self.benchmarks)]
        return [self._declared(name, role) for name, role in entries if self._is_own(name)]

    def _is_own(self, name: str) -> bool:
        """True if `name` is a user's file, or the problems held out of one."""
        return files.is_name(name) or (name == HELD_OUT and files.is_name(self.data))

    def _declared(self, name: str, role: Role) -> Dataset:
        if not self._is_own(name):
            return datasets.get(name)
        dataset = datasets.of_file(self.data if name == HELD_OUT else name, role)
        dataset = replace(dataset, grader=self.graded_by or dataset.grader)
        return replace(dataset, name=HELD_OUT, draw=partial(_held_out, dataset)) if name == HELD_OUT else dataset

    def _recorded(self, dataset: Dataset) -> tuple[str, int]:
        """Digest and number of problems of a file, as `digests` has them; empty and 0 for any other data set."""
        record = dict(zip([file.name for file in self._files()], self.digests, strict=False)).get(dataset.name, "")
        digest, _, count = record.partition(":")
        return digest, int(count or 0)


def _held_out(dataset: Dataset) -> Reading:
    """The problems of a file that are held out of training.

    Raises:
        ConfigError: no problem is held out, or the file cannot be read.
    """
    reading = datasets.read(dataset)
    problems = {text: counts for text, counts in reading.problems.items() if held_out(Problem(text, ""))}
    if not problems:
        raise no_room(
            f"task.benchmarks: of the {len(reading.problems)} problems of {dataset.file} none is held out: one in "
            f"{HELD_OUT_SHARE} is, chosen by a hash of its text",
            fix="more problems, or task.benchmarks=[./held_out.jsonl]",
        )
    return replace(reading, problems=problems, rows=sum(sum(counts.values()) for counts in problems.values()))


def _left_out(training: Loaded, benchmarks: Iterable[Loaded]) -> str:
    """How many problems of a training file are left out, and why; empty if none."""
    texts = {problem.text for problem in training.problems}
    also = {tier.name: sum(problem.text in texts for problem in tier.problems) for tier in benchmarks}
    reasons = [f"{count} also in {name}" for name, count in also.items() if count]
    if training.conflicts:
        reasons.append(f"{training.conflicts} with contradicting golds")
    return ", ".join(reasons)


def _sha256(file: str) -> str:
    """12 hex digits of the content of `file`. Raises ConfigError if there is no such file."""
    with files.locate(Path(file), "").open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:12]


@dataclass(frozen=True)
class Published:
    """The problems of one run (see `base.Problems`); each file is read once."""

    task: Math
    train: Limits
    tokens: Tokens

    @cached_property
    def loaded(self) -> dict[str, Loaded]:
        """The data sets by name: the training set, then the benchmarks.

        Raises:
            ConfigError: a data set cannot be read, or a benchmark is not complete.
        """
        task = self.task
        return {dataset.name: task.load(dataset) for dataset in (task.training_set, *task.held_out_sets)}

    @cached_property
    def pool(self) -> Sequence[Problem]:
        """The training problems that fit, by id.

        Raises:
            ConfigError: the data cannot be read, or too few problems fit to fill one batch.
        """
        task, (training, *held_out) = self.task, self.loaded.values()
        is_own, left_out = files.is_name(task.data), _left_out(training, held_out)
        shared = {problem.text for loaded in held_out for problem in loaded.problems} if is_own else ()
        problems = [problem for problem in training.problems if problem.text not in shared]
        return fitting(task, task.source, problems, self.train, self.tokens, left_out if is_own else "")

    @property
    def distinct(self) -> int:
        return len(self.pool)

    def training(self, seed: int, start: int, count: int) -> list[Problem]:
        """See `Problems`; the pool epoch by epoch."""
        return from_pool(self.pool, seed, start, count)

    def tiers(self, count: int) -> dict[str, Sequence[Problem]]:
        return {tier.name: self.loaded[tier.name].problems for tier in self.task.held_out_sets}

    def sources(self) -> dict[str, DataSource]:
        left_out = {self.task.source: len(self.loaded[self.task.source].problems) - len(self.pool)}
        return {
            name: DataSource(
                digest=loaded.digest,
                source=loaded.source,
                problems=len(loaded.problems),
                left_out=left_out.get(name, 0),
            )
            for name, loaded in self.loaded.items()
        }


def complete(name: str, file: Path | None) -> Loaded:
    """All problems of a benchmark.

    Raises:
        ConfigError: the data cannot be read, or the number of problems is not the declared number: an evaluation must
            be complete.
    """
    loaded, size = datasets.load(name, file), datasets.get(name).size
    if len(loaded.problems) != size:
        fix = f"mcpo components check data {name if file is None else f'{file} --as {name}'}"
        raise bad_data(f"{name}: {len(loaded.problems)} problems instead of the published {size}", fix=fix)
    return loaded
