"""The settings of `mcpo evaluate`: what is sampled and how (IDENTITY), where and how fast (RUNTIME)."""

from dataclasses import dataclass
from typing import Literal

from mcpo_cli.settings import identity, runtime


@dataclass(frozen=True)
class DataSource:
    """path: a file, or a folder with a file `<benchmark>.jsonl` or `.parquet` each; empty loads from the hub."""

    path: str = runtime("")


@dataclass(frozen=True)
class Grading:
    """How answers are graded."""

    timeout: float = runtime(5.0, gt=0, le=600)
    """Seconds that an answer may take."""
    workers: int = runtime(0, ge=0, le=256)
    """Processes, 0 for one a core."""
    memory_mib: int = runtime(1024, ge=256)
    """Cap of each process."""
    refuse_unevaluated: bool = runtime(False)
    """Whether an answer that restates the problem is wrong, as in the training reward; results name the grader so."""


@dataclass(frozen=True)
class EvaluationCompute:
    """device and threads: of engine=hf, and the device of engine=vllm. tracking_uri: see `schema.Compute`."""

    device: Literal["auto", "cpu", "cuda"] = runtime("auto")
    threads: int = runtime(1, ge=1)
    tracking_uri: str = runtime("")


@dataclass(frozen=True)
class Evaluation:
    """n samples of every problem at `temperature` (0: greedy), each of at most `max_tokens` tokens.

    prompt: the template around a problem, the one training uses. chat: `auto` puts the model's own chat
    template around that, where it has one. revision: of a model of the hub. protocol: `paper` refuses to start
    unless everything is as in Section 6.1 of the paper. The defaults are the paper's.
    """

    engine: Literal["hf", "vllm"] = identity("hf")
    n: int = identity(8, ge=1, le=4096)
    temperature: float = identity(0.7, ge=0, le=100)
    top_p: float = identity(1.0, gt=0, le=1)
    max_tokens: int = identity(20480, ge=1)
    seed: int = identity(0, ge=0)
    prompt: Literal["dapo", "boxed", "plain"] = identity("dapo")
    chat: Literal["auto", "off"] = identity("auto")
    revision: str = runtime("")
    protocol: Literal["any", "paper"] = runtime("any")
    data: DataSource = runtime(DataSource())
    grading: Grading = runtime(Grading())
    compute: EvaluationCompute = runtime(EvaluationCompute())
