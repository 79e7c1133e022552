"""Schemas of the journal: what each file of an attempt holds. Writers and readers both import these.

runs/<run_id>/
  lock                            held (flock) by the process that trains; the kernel frees it when that dies
  data.json                       a DataSource a published data set, by name, where the task uses any
  attempt_<n>/
    spec.json                     RunSpec.to_dict()
    provenance.json               commit, diff, versions, hardware, command
    status.json                   Status, replaced atomically
    metrics.jsonl                 a StepRow a global step
    groups/step_<s>.jsonl         a GroupRow a prompt group of that step
    eval/step_<s>.jsonl           an EvalRow a held-out problem
    samples/step_<s>.jsonl        a SampleRow a response, for a few groups
    checkpoints/step_<s>/         weights, optimizer, manifest with checksums
    policy/                       the final policy in Hugging Face format, with its tokenizer
    log.txt                       what the process printed

evals/<eval_id>/
  lock                            held by the process that evaluates
  protocol.json                   how it samples
  attempt_<n>/provenance.json     one a start
  samples/<benchmark>/<id>.json.gz   all samples of a problem, written whole
  gradings/<n>/                   never overwritten: grading again adds one
    <benchmark>.jsonl             a GradeRow a problem
    results.json                  Results, written last
"""

from typing import Any, Literal, NotRequired, TypedDict

SOURCES = "data.json"
State = Literal["planned", "running", "done", "failed", "interrupted"]


class Status(TypedDict):
    """status.json of an attempt.

    start_step: the checkpoint this attempt began from. Rows of earlier attempts beyond it are void.
    durable_step: the last step a checkpoint covers: rows up to it can never be taken back.
    phase: what it does now, in words. Times are seconds since the epoch.
    """

    state: State
    start_step: int
    durable_step: int
    pid: int
    started: float
    updated: float
    phase: NotRequired[str]
    error: NotRequired[str]


class DataSource(TypedDict):
    """A published data set as a run found it. left_out: training problems whose prompt is too long."""

    digest: str
    source: str
    problems: int
    left_out: int


class StepRow(TypedDict):
    """One global step. Metric names are `group/name`; a value that is absent was not defined at that step."""

    step: int
    time: float
    metrics: dict[str, float]


class GroupRow(TypedDict):
    """One prompt group of one global step. p: rollout accuracy. kept: entered the batch (dynamic sampling)."""

    step: int
    prompt: str
    p: float
    mean_length: float
    kept: bool


class EvalRow(TypedDict):
    """One held-out problem: c of n graded samples were right. Everything else about accuracy is derived from these.

    ungraded: samples whose grading failed (`infra_error`), which are in no count; absent where there are none.
    """

    step: int
    tier: str
    problem: str
    n: int
    c: int
    ungraded: NotRequired[int]


class SampleRow(TypedDict):
    """One full response, for reading."""

    step: int
    prompt: str
    response: str
    gold: str
    correct: bool


class GradeRow(TypedDict):
    """One problem of an evaluation: c of n graded samples were right. Lists have an entry a sample.

    statuses: of `mcpo_cli.grading`; an `infra_error` is in no count. answers: the text that was judged,
    cut to 200 characters. tokens: lengths. finishes: `stop`, `length` (cut) or `no_room` (the prompt fills
    the model's window). copies: samples that repeat an earlier one; long_copies: long ones among them.
    """

    problem: str
    gold: str
    n: int
    c: int
    statuses: list[str]
    answers: list[str | None]
    details: list[str]
    tokens: list[int]
    finishes: list[str]
    copies: int
    long_copies: int


class BenchmarkResult(TypedDict):
    """One benchmark of a grading. digest, source: of the data. grader: with its version."""

    problems: int
    digest: str
    source: str
    notes: list[str]
    grader: str
    metrics: dict[str, float]
    warnings: list[str]


class Results(TypedDict):
    """results.json of a grading: all that tables and the store need. time: seconds since the epoch.

    engines: versions that drew the samples. commit, dirty: of the code that graded.
    """

    eval_id: str
    grading: int
    time: float
    label: str
    protocol: dict[str, Any]
    deviations: list[str]
    engines: list[str]
    commit: str | None
    dirty: bool | None
    benchmarks: dict[str, BenchmarkResult]
