"""Schemas of the journal: what each file of an attempt holds. Writers and readers both import these.

JSON documents have a checksum of their own (`journal.write_json`).

runs/<run_id>/
  worker.log                      what the process printed
  lock                            held (flock) by the process that trains; the kernel frees it when that dies
  data.json                       a DataSource a published data set, by name, where the task uses any
  attempt_<n>/
    spec.json                     RunSpec.to_dict()
    provenance.json               commit, diff, versions, hardware, command
    status.json                   Status, replaced atomically
    metrics.jsonl                 a StepRow a global step
    groups/step_<s>.jsonl         a GroupRow a prompt group of that step
    eval/step_<s>.jsonl           an EvalRow a held-out problem
    rerolls/step_<s>.jsonl        a RerollRow a prompt that a probe rolled again under the policy of that step
    mini_batches/step_<s>.jsonl   a MiniBatchRow a gradient step
    gradients/step_<s>.jsonl      a GradientRow a prompt whose gradient was measured
    samples/step_<s>.jsonl        a SampleRow a response, for a few groups
    checkpoints/step_<s>/         weights, optimizer, manifest with checksums
    policy/                       the final policy in Hugging Face format, with its tokenizer and a manifest
    sums.json                     checksums of all .jsonl files, written when the attempt ended or the next one begins

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
    """One prompt group of one global step. p: rollout accuracy. kept: entered the batch (dynamic sampling).

    truncated: share of its rollouts that were cut. duplicates: share of pairs of its rollouts that are identical.
    entropy: of the policy where tokens were drawn, exact, nats, mean over the tokens of all its rollouts; of the right
    and of the wrong ones where it has any.
    """

    step: int
    prompt: str
    p: float
    mean_length: float
    kept: bool
    truncated: float
    duplicates: float
    entropy: NotRequired[float]
    entropy_right: NotRequired[float]
    entropy_wrong: NotRequired[float]


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


class RerollRow(TypedDict):
    """One prompt rolled again under the policy that samples the batch of `step`: c of n rollouts were right.

    source: it was mastered in the batch of step `origin`, or it belongs to the panel (origin 0). At origin = step
    a mastered prompt is rolled under the policy that it was picked under: the control.
    """

    step: int
    source: Literal["mastered", "panel"]
    origin: int
    prompt: str
    gold: str
    n: int
    c: int


class MiniBatchRow(TypedDict):
    """One gradient step: what its mini-batch measured under the weights before it."""

    step: int
    mini_batch: int
    """Counts from 1 in a step."""
    sums: dict[str, list[float]]
    """Numerator and denominator of each metric: `train/<term>_loss` of each term of the loss, and what the method
    reports. A denominator of 0 marks a count."""


class GradientRow(TypedDict):
    """One prompt's direction v in the space of the weights, under the policy that sampled the batch of `step`.

    0 < p < 1: v is minus the gradient of the group's own policy loss (a mean over its rollouts), where the prompt
    wants the update to go. p = 1: v is the gradient of the mean over its rollouts of the mean token log-likelihood.
    norm: |v|. with_update: v . U, U the mean v of the prompts measured in that step with 0 < p < 1. with_mastered:
    v . M, M the mean v of those with p = 1. weight: the measured query weight W = v . u / |u|^2, u the gradient of
    s+ - s- (Eq. 5-6). residual: |v - W u| / |v|. What is not defined is absent.
    """

    step: int
    prompt: str
    p: float
    norm: float
    with_update: NotRequired[float]
    with_mastered: NotRequired[float]
    weight: NotRequired[float]
    residual: NotRequired[float]


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
