"""Schemas of the journal: what each file of an attempt holds. Writers and readers both import these.

runs/<run_id>/
  lock                            held (flock) by the process that trains; the kernel frees it when that dies
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
"""

from typing import Literal, NotRequired, TypedDict

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
    """One held-out problem: c of n samples were right. Everything else about accuracy is derived from these."""

    step: int
    tier: str
    problem: str
    n: int
    c: int


class SampleRow(TypedDict):
    """One full response, for reading."""

    step: int
    prompt: str
    response: str
    gold: str
    correct: bool
