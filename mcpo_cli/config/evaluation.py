"""The settings of `mcpo evaluate`: what is sampled and how (IDENTITY), where and how fast (RUNTIME)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mcpo_cli.settings import identity, later, runtime


@dataclass(frozen=True)
class BenchmarkSource:
    """The source of the benchmarks."""

    path: str = runtime("")
    """A file, or a folder with one file per benchmark, `<benchmark>.jsonl` or `.parquet`; empty
    loads from the Hugging Face Hub."""


@dataclass(frozen=True)
class Grading:
    """How answers are graded."""

    timeout: float = runtime(5.0, gt=0, le=600)
    """Seconds allowed to grade one answer."""
    workers: int = runtime(0, ge=0, le=256)
    """Grading processes; 0 means one per core."""
    memory_mib: int = runtime(1024, ge=256)
    """Memory limit of each process, in MiB."""
    refuse_unevaluated: bool = runtime(False)
    """Whether an answer that restates the problem counts as incorrect, as in training; the grader's name shows it."""


@dataclass(frozen=True)
class EvaluationCompute:
    """Settings of the machine that an evaluation uses."""

    device: Literal["auto", "cpu", "cuda"] = runtime("auto")
    threads: int = runtime(1, ge=1)
    """CPU threads of the engine."""
    tracking_uri: str = runtime("")
    """See `schema.Compute`."""


@dataclass(frozen=True)
class Evaluation:
    """How a model is evaluated."""

    engine: Literal["hf", "local", "vllm"] = identity("hf")
    """`hf` (transformers, a problem at a time), `local` (the local backend, many at once) or `vllm`."""
    n: int = identity(8, ge=1, le=4096)
    """Samples of each problem."""
    temperature: float = identity(0.7, ge=0, le=100)
    """Sampling temperature; 0 is greedy."""
    top_p: float = identity(1.0, gt=0, le=1)
    max_tokens: int = identity(20480, ge=1)
    """Tokens of the longest response; the model's window may leave less."""
    task_max_tokens: int = later(0, ge=0)
    """Tokens of the longest response to a task's own problems, if fewer. 0 takes `train.max_response` of a run that was
    trained on the task, and 256 otherwise; tasks with their own vocabulary have no such limit."""
    seed: int = identity(0, ge=0)
    prompt: Literal["dapo", "boxed", "plain"] = identity("dapo")
    """The template around a problem of a published benchmark or a file. Tasks ask as in training."""
    chat: Literal["auto", "off"] = identity("auto")
    """`auto` wraps the prompt in the model's own chat template, if it has one."""
    chat_variables: Mapping[str, Any] | None = later(None)
    """Variables of the model's chat template, such as `{enable_thinking: false}`; null sets none."""
    revision: str = runtime("")
    """Branch, tag or commit of a model on the Hugging Face Hub."""
    data: BenchmarkSource = runtime(BenchmarkSource())
    grading: Grading = runtime(Grading())
    compute: EvaluationCompute = runtime(EvaluationCompute())
