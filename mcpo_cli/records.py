"""Schemas of the records, shared by writers and readers. `journal.write_json` adds a checksum to each JSON document.

runs/<run_id>/
  worker.log                      output of the worker process
  lock                            held (flock) by the training process; the kernel frees it when that process dies
  data.json                       data set name -> DataSource, if the task uses published data sets
  attempt_<n>/
    spec.json                     RunSpec.to_dict()
    provenance.json               commit, diff, versions, hardware, command
    status.json                   Status, replaced atomically
    metrics.jsonl                 one StepRow per global step
    groups/step_<s>.jsonl         one GroupRow per prompt group of that step with two graded rollouts
    eval/step_<s>.jsonl           one EvalRow per held-out problem
    rerolls/step_<s>.jsonl        one RerollRow per prompt that a probe resampled under the policy of that step
    mini_batches/step_<s>.jsonl   one MiniBatchRow per gradient step
    gradients/step_<s>.jsonl      one GradientRow per prompt whose gradient was measured
    samples/step_<s>.jsonl        one SampleRow per response, for a few groups
    branches/step_<s>.jsonl       in `runs/<run_id>/branches/...`: one BranchRow per arm and measured prompt;
                                  mini_batches/step_<s>.jsonl is there too
    checkpoints/step_<s>/         weights, optimizer state, manifest with checksums
    policy/                       the final policy in Hugging Face format, with its tokenizer and a manifest
    sums.json                     checksums of all .jsonl files, written when the attempt ends or the next one begins

evals/<eval_id>/
  lock                            held by the evaluating process
  protocol.json                   the sampling protocol
  attempt_<n>/provenance.json     one per start
  samples/<benchmark>/<id>.json.gz   all samples of a problem, written atomically
  gradings/<n>/                   one folder per grading, never overwritten
    <benchmark>.jsonl             one GradeRow per problem
    results.json                  Results, written last
"""

from typing import Any, Literal, NotRequired, TypedDict

SOURCES = "data.json"
KEYS: dict[str, dict[str, Any]] = {
    "spec.json": {"method": dict, "task": dict},
    "status.json": {"state": str, "start_step": int, "durable_step": int, "pid": int}
    | {"started": (int, float), "updated": (int, float)},
}
"""Keys that readers rely on, by document: a checksum detects accidental changes, not another author."""
AXES = {
    "cost/rollouts": "sampled rollouts",
    "cost/sampled_tokens": "sampled tokens",
    "cost/trained_tokens": "trained tokens",
    "cost/gradient_steps": "gradient steps",
    "cost/flops": "floating-point operations",
    "cost/seconds": "seconds of sampling and update",
}
"""Cost of training up to and including a global step: metrics of a StepRow and their names for readers.

`backends.measure.CostTotals` says what each one counts.
"""
BINS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))
"""Accuracy bins (low, high] of metrics; the last bin excludes 1."""
State = Literal["planned", "running", "done", "failed", "interrupted"]


class Status(TypedDict):
    """status.json of an attempt. Times are seconds since the epoch."""

    state: State
    start_step: int
    """Step of the checkpoint that the attempt began from. Later rows of earlier attempts are void."""
    durable_step: int
    """Last step that a checkpoint covers. Rows up to it are final."""
    pid: int
    started: float
    updated: float
    phase: NotRequired[str]
    """The run's current activity, in words."""
    error: NotRequired[str]
    notes: NotRequired[list[str]]
    """Notes about this attempt: the step it continues from, and changed versions."""


class DataSource(TypedDict):
    """A published data set as the run read it."""

    digest: str
    source: str
    problems: int
    left_out: int
    """Number of training problems left out: their prompt is too long, or a benchmark has them, too."""


class StepRow(TypedDict):
    """One global step. Metric names are `group/name`; a metric undefined at that step is absent."""

    step: int
    time: float
    metrics: dict[str, float]
    weights: NotRequired[str]
    """SHA-256 of the policy's weights after the step (backend=local), so that records alone show that a run trained
    again has the same bits."""


class GroupRow(TypedDict):
    """One prompt group of one global step."""

    step: int
    prompt: str
    p: float
    """Rollout accuracy."""
    mean_length: float
    kept: bool
    """True if the group entered the batch (dynamic sampling)."""
    truncated: float
    """Share of truncated rollouts."""
    duplicates: float
    """Share of identical pairs of rollouts."""
    rollouts: NotRequired[int]
    """Number of graded rollouts, at steps whose groups differ in it; else each group has `train.rollouts`."""
    entropy: NotRequired[float]
    """Exact entropy of the policy's next-token distribution, in nats, averaged over all tokens of the rollouts.
    Absent under backend=verl for groups that dynamic sampling dropped."""
    entropy_right: NotRequired[float]
    """The entropy over correct rollouts; absent without any."""
    entropy_wrong: NotRequired[float]
    """The entropy over incorrect rollouts; absent without any."""


class EvalRow(TypedDict):
    """One held-out problem: c of n graded samples were correct. All accuracy figures are derived from these rows."""

    step: int
    tier: str
    problem: str
    n: int
    c: int
    ungraded: NotRequired[int]
    """Samples whose grading failed (`infra_error`), not counted in n; absent if 0."""


class RerollRow(TypedDict):
    """One prompt resampled under the policy that samples the batch of `step`: c of n rollouts were correct."""

    step: int
    source: Literal["mastered", "panel"]
    """The prompt was mastered in the batch of step `origin`, or belongs to the fixed panel."""
    origin: int
    """0 for the panel. If equal to `step`, the policy is the one that mastered the prompt: the control."""
    prompt: str
    gold: str
    n: int
    c: int


class MiniBatchRow(TypedDict):
    """One gradient step: metrics of its mini-batch under the weights before it."""

    step: int
    mini_batch: int
    """Number within the step, from 1."""
    sums: dict[str, list[float]]
    """Metric -> numerator and denominator: `train/<term>_loss` for each loss term, and the method's own metrics.
    A denominator of 0 marks a count."""
    arm: NotRequired[str]
    """In a branch study, the arm whose step this gradient step is part of."""


class GradientRow(TypedDict):
    """One prompt's direction v in weight space, under the policy that sampled the batch of `step`.

    0 < p < 1: v is minus the gradient of the group's own policy loss (a mean over its rollouts), the direction of the
    prompt's own update. p = 1: v is the gradient of the mean over its rollouts of the mean token log-likelihood.
    Undefined values are absent.
    """

    step: int
    prompt: str
    p: float
    """Rollout accuracy."""
    norm: float
    """|v|."""
    with_update: NotRequired[float]
    """v . U, with U the mean v of the prompts measured in that step with 0 < p < 1."""
    with_mastered: NotRequired[float]
    """v . M, with M the mean v of the prompts measured in that step with p = 1."""
    weight: NotRequired[float]
    """The measured query weight W = v . u / |u|^2, with u the gradient of s+ - s- (Eq. 5-6)."""
    residual: NotRequired[float]
    """|v - W u| / |v|."""


class SampleRow(TypedDict):
    """One full response, for people to read."""

    step: int
    prompt: str
    response: str
    gold: str
    correct: bool


class BranchRow(TypedDict):
    """One prompt before and after one arm's global step from the saved state of a trunk run.

    n rollouts were sampled from the policy before the step and n from the policy after it. All 2n estimate the change
    of accuracy: the mean of 2 tanh(d / 2) R, where d is a response's log-probability after the step minus before it,
    and R is 1 if it is correct (multiple importance sampling, see `backends/local/branching.py`).
    """

    step: int
    """The global step that was taken from the saved state, which the step before it had left."""
    arm: str
    cohort: Literal["mastered", "held_out"]
    """The prompt had all rollouts of the batch correct, or it is a held-out problem."""
    tier: str
    """The held-out tier; empty for mastered prompts."""
    prompt: str
    n: int
    c: int
    """Number of correct rollouts before the step."""
    c_after: int
    """Number of correct rollouts after the step."""
    change: float
    """The estimated change of accuracy."""
    balance: float
    """Mean of 2 tanh(d / 2), 0 in expectation."""
    drift: float
    """Mean over tokens of the rollouts before the step of |log p after - log p before|, nats."""


class GradeRow(TypedDict):
    """One problem of an evaluation: c of n graded samples were correct. Lists have one entry per sample."""

    problem: str
    gold: str
    n: int
    c: int
    statuses: list[str]
    """Grading statuses of `mcpo_cli.grading`; samples with `infra_error` are not counted in n."""
    answers: list[str | None]
    """The graded text, shortened to 200 characters."""
    details: list[str]
    tokens: list[int]
    """Response lengths."""
    finishes: list[str]
    """`stop`, `length` (truncated) or `no_room` (the prompt fills the model's window)."""
    copies: int
    """Number of samples that repeat an earlier one."""
    long_copies: int
    """Number of long samples among `copies`."""


class BenchmarkResult(TypedDict):
    """One benchmark of a grading."""

    problems: int
    digest: str
    """Digest of the data."""
    source: str
    """Source of the data."""
    notes: list[str]
    grader: str
    """The grader's name and version."""
    metrics: dict[str, float]
    warnings: list[str]


class Results(TypedDict):
    """results.json of a grading: everything that tables and the store need."""

    eval_id: str
    grading: int
    time: float
    """Seconds since the epoch."""
    label: str
    protocol: dict[str, Any]
    deviations: list[str]
    """The differences of its protocol from the default one."""
    shortfalls: list[str]
    """The ways in which the results differ from the protocol."""
    engines: list[str]
    """Versions of the engines that drew the samples."""
    commit: str | None
    """Commit of the code that graded."""
    dirty: bool | None
    """True if that code differed from its commit."""
    benchmarks: dict[str, BenchmarkResult]
