"""What a run is. Every field is IDENTITY (changes the result, enters the run id) or RUNTIME (does not).

The defaults stand here and nowhere else; the YAML files below `experiments/conf` hold only what a
named preset changes.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from mcpo_cli.methods import Method
from mcpo_cli.plugins import Plugin
from mcpo_cli.settings import IDENTITY, identity, plain, runtime
from mcpo_cli.tasks import Task

RUN_ID_VERSION = 2
"""Raised when the same fields come to mean another result, so that old records are not taken for new."""


@dataclass(frozen=True)
class Model:
    """A Qwen3: built from scratch and warmed up, or one that exists. Sizes in units, not bytes.

    path: a Hugging Face folder or a model of the hub (`OWNER/NAME`); empty builds one from the sizes below
    (head_dim 32 so that vLLM can load it). revision: branch, tag or commit of the hub.
    The sizes of a model at `path` must be the ones in its config.json: estimates rest on them.
    kv_heads: heads of keys and values, 0 for as many as `heads`. vocabulary: rows of the embedding, 0 for the
    task's own tokens. tied: one matrix is embedding and output.
    """

    name: str = identity("toy-s")
    path: str = identity("")
    revision: str = identity("")
    hidden: int = identity(64, ge=8)
    layers: int = identity(2, ge=1)
    heads: int = identity(2, ge=1)
    kv_heads: int = identity(0, ge=0)
    head_dim: int = identity(32, ge=2)
    mlp: int = identity(192, ge=8)
    vocabulary: int = identity(0, ge=0)
    tied: bool = identity(True)
    rope_theta: float = identity(100.0, gt=0)
    init_std: float = identity(0.5, gt=0)


@dataclass(frozen=True)
class Warmup:
    """Supervised training that makes the base policy; stops on accuracy, not on a count of steps.

    target_accuracy: share of right answers at temperature 1 on training prompts. max_steps: an error
    when reached.
    """

    batch: int = identity(128, ge=1)
    lr: float = identity(4e-3, gt=0)
    target_accuracy: float = identity(0.4, ge=0, le=1)
    probe_every: int = identity(10, ge=1)
    probe_prompts: int = identity(512, ge=1)
    max_steps: int = identity(3000, ge=0)


@dataclass(frozen=True)
class Train:
    """One run of RL. Batch sizes count prompts; lengths count tokens.

    steps: global steps, one rollout batch each. mini_batch: prompts of one gradient step.
    max_prompt: the longest prompt; published problems with a longer one are left out.
    max_refills: sampling rounds after the first that dynamic sampling may use to fill a batch.
    overlong_cache: the last tokens before max_response, in which reward falls linearly from 0 to
    -overlong_penalty (DAPO, Eq. 13 there); 0 turns the shaping off.
    """

    steps: int = identity(20, ge=1, le=1_000_000)
    prompts: int = identity(128, ge=1)
    rollouts: int = identity(16, ge=2)
    mini_batch: int = identity(64, ge=1)
    lr: float = identity(7e-4, gt=0)
    lr_warmup_steps: int = identity(0, ge=0)
    betas: tuple[float, float] = identity((0.9, 0.999))
    weight_decay: float = identity(0.0, ge=0)
    grad_clip: float = identity(1.0, gt=0)
    temperature: float = identity(1.0, ge=0.01, le=100)
    max_prompt: int = identity(32, ge=1)
    max_response: int = identity(20, ge=2)
    overlong_cache: int = identity(4, ge=0)
    overlong_penalty: float = identity(1.0, ge=0)
    max_refills: int = identity(20, ge=0)

    def lr_at(self, step: int) -> float:
        """The learning rate of global step `step`, which counts from 1: a linear warm-up, then constant."""
        return self.lr * (min(1.0, step / self.lr_warmup_steps) if self.lr_warmup_steps else 1.0)


@dataclass(frozen=True)
class Eval:
    """Held-out tiers: `samples` per problem at `temperature`; `problems` of each tier that is generated.

    every: global steps between evaluations; the base policy and the last step are always evaluated.
    """

    problems: int = identity(200, ge=1, le=1000)
    samples: int = identity(8, ge=1)
    temperature: float = identity(0.7, ge=0.01, le=100)
    every: int = identity(10, ge=1)


@dataclass(frozen=True)
class Probe:
    """What is measured beside training. None of it changes what is trained: it decides what the records hold.

    every: global steps from one cohort of mastered prompts to the next; 0 for none. prompts: of a cohort, at most.
    lags: a cohort is rolled again under the policy so many global steps later; 0, the policy that it was picked
    under, is the control and always among them.
    panel: prompts of a fixed panel, the first ones of the training stream. panel_every: global steps from one roll of
    it to the next; 0 for none.
    gradients_every: global steps from one measurement of single prompts' gradients to the next, which costs backward
    passes; 0 for none, as with backend=verl, which measures none. gradient_prompts: of one measurement, at most.
    """

    every: int = identity(1, ge=0)
    prompts: int = identity(16, ge=1)
    lags: tuple[int, ...] = identity((0, 1))
    panel: int = identity(32, ge=1)
    panel_every: int = identity(5, ge=0)
    gradients_every: int = identity(10, ge=0)
    gradient_prompts: int = identity(16, ge=2)


@dataclass(frozen=True)
class Compute:
    """Where and how fast: none of it changes a result beyond floating-point rounding.

    threads: of one run; with more than one, each computes a micro-batch of its own.
    micro_batch: prompts per forward and backward pass. checkpoint_every: global steps.
    parallel: runs at a time, 0 for one a core. tracking_uri: MLflow store, empty for the environment's
    MLFLOW_TRACKING_URI or else MCPO_HOME/mlflow.db; `offline` writes journals only (`mcpo runs sync`
    brings them to a store later). A store behind a password is named by the environment, as settings are written down.
    time_limit: minutes that a worker may take; stall_limit: minutes without a new step or phase; memory_limit: GiB
    that it may use with all processes that it starts; 0 for none. A worker that passes one is killed, its run fails,
    and the same command continues it from its last checkpoint.
    """

    device: Literal["auto", "cpu", "cuda"] = runtime("auto")
    threads: int = runtime(1, ge=1)
    parallel: int = runtime(0, ge=0)
    micro_batch: int = runtime(16, ge=1)
    checkpoint_every: int = runtime(5, ge=1)
    sample_groups: int = runtime(2, ge=0)
    time_limit: float = runtime(0.0, ge=0)
    stall_limit: float = runtime(0.0, ge=0)
    memory_limit: float = runtime(0.0, ge=0)
    tracking_uri: str = runtime("")


@dataclass(frozen=True)
class Cluster:
    """The machines of backend=verl. None of it changes a result beyond floating-point rounding and random numbers.

    nodes, gpus: machines, and GPUs of each. ray_address: of a Ray cluster that is there already
    (`HOST:PORT`, or `auto`); empty starts one on this machine.
    rollout: the engine that samples. tensor_parallel: GPUs that share one copy of the model while it samples.
    gpu_memory: the share of a GPU that vLLM takes. max_tokens_per_gpu: tokens of a forward and backward
    pass on one GPU; at least one whole sequence. offload: weights and optimizer wait in the CPU's memory while
    the other engine works.
    attention: the implementation while training; padding is removed only under flash_attention_2.
    plugin: a module that each process of verl imports first, for a device or a rollout engine that verl lacks.
    launcher: `slurm` hands each run to SLURM as a job of `nodes` with `gpus` and `cpus` a node, for at most `hours`.
    partition, account: of that job; empty for the cluster's defaults.
    """

    nodes: int = runtime(1, ge=1)
    gpus: int = runtime(1, ge=1)
    cpus: int = runtime(16, ge=1)
    rollout: Literal["vllm", "transformers"] = runtime("vllm")
    tensor_parallel: int = runtime(1, ge=1)
    gpu_memory: float = runtime(0.6, gt=0, lt=1)
    max_tokens_per_gpu: int = runtime(32768, ge=1)
    offload: bool = runtime(False)
    attention: Literal["flash_attention_2", "sdpa"] = runtime("flash_attention_2")
    ray_address: str = runtime("")
    plugin: str = runtime("")
    launcher: Literal["local", "slurm"] = runtime("local")
    partition: str = runtime("")
    account: str = runtime("")
    hours: int = runtime(24, ge=1)


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines one run."""

    method: Method
    task: Task
    backend: Literal["local", "verl"] = identity("local")
    scale: str = identity("toy")
    regime: str = identity("drift")
    seed: int = identity(0, ge=0)
    model: Model = identity(Model())
    warmup: Warmup = identity(Warmup())
    train: Train = identity(Train())
    eval: Eval = identity(Eval())
    probe: Probe = identity(Probe())
    compute: Compute = runtime(Compute())
    cluster: Cluster = runtime(Cluster())
    plugins: Mapping[str, Plugin] = field(default_factory=dict, metadata={"role": IDENTITY})
    """The plug-ins that decide the result, by what each provides (`method NAME`); no setting."""

    @functools.cached_property
    def run_id(self) -> str:
        """`<method>-<model>-s<seed>-<hash>`; only the hash decides, the rest is for reading."""
        return f"{self.method.label}-{self.model.name}-s{self.seed}-{digest(self.identity())}"

    @property
    def base_id(self) -> str:
        """Names the base policy: shared by every run that starts from the same warm-up."""
        parts = {key: self.identity()[key] for key in ("model", "task", "warmup", "seed")}
        if plugins := {use: asdict(one) for use, one in self.plugins.items() if not use.startswith("method ")}:
            parts["plugins"] = plugins
        return f"{self.model.name}-s{self.seed}-{digest(parts)}"

    def identity(self) -> dict[str, Any]:
        """The nested plain data of all IDENTITY fields, with the names of method and task."""
        return self._plain(runtime_too=False)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain data; `config.load.from_dict` reads it back."""
        return self._plain(runtime_too=True)

    def _plain(self, *, runtime_too: bool) -> dict[str, Any]:
        nested: dict[str, Any] = plain(self, runtime_too=runtime_too)
        for key, name in (("method", self.method.name), ("task", self.task.name)):
            nested[key] = {"name": name, **nested[key]}
        # Runs without plug-ins keep the ids that they had before there were any.
        if plugins := nested.pop("plugins"):
            nested["plugins"] = {use: asdict(one) for use, one in plugins.items()}
        return nested


def digest(data: Any) -> str:
    """12 hex digits of a versioned SHA-256 of plain data, independent of key order."""
    text = json.dumps([RUN_ID_VERSION, data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
