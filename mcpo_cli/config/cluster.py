"""The settings of backend=verl's machines."""

from dataclasses import dataclass
from typing import Literal

from mcpo_cli.settings import later, runtime

LOGGERS = ("wandb", "tensorboard", "trackio")
"""Values of `cluster.loggers`, which are packages. Every run also has MLflow and rows."""


@dataclass(frozen=True)
class Cluster:
    """The machines of backend=verl, and the trackers of both backends.

    Its runtime settings change results by rounding and random numbers at most.
    """

    nodes: int = runtime(1, ge=1)
    """Machines."""
    gpus: int = runtime(1, ge=1)
    """GPUs of each machine."""
    cpus: int = runtime(16, ge=1)
    """CPU cores of each machine in a SLURM job."""
    rollout: Literal["vllm", "transformers"] = runtime("vllm")
    """The engine that samples."""
    tensor_parallel: int = runtime(1, ge=1)
    """GPUs that share one copy of the model while sampling."""
    gpu_memory: float = runtime(0.6, gt=0, lt=1)
    """Share of a GPU's memory that vLLM takes."""
    max_tokens_per_gpu: int = runtime(32768, ge=1)
    """Tokens of a forward and backward pass on one GPU; at least one whole sequence."""
    sequence_parallel: int = runtime(1, ge=1)
    """GPUs that share each sequence in training (Ulysses); a sequence may then have as many times the tokens."""
    fused_kernels: bool = later(False)
    """Whether verl's Triton kernels compute log-probabilities without storing logits, which are then never rounded.

    Otherwise logits are bfloat16, whose steps between 16 and 32 are 0.125: with `method.delta` far below that, part of
    the drift that the hinge sees is rounding. So this setting is of the kind identity. verl's other backend, `torch`,
    saves memory only: it rounds logits as well.
    """
    deterministic: bool = later(False)
    """Whether the same command computes the same bits on the same machine: verl's `full_determinism`.

    Sums in a fixed order in training (deterministic kernels, NCCL's ring), batch-invariant kernels in vLLM, and under
    dynamic sampling whole rounds of prompts as with the local engine, instead of one prompt for each that was answered.
    It is slower, and vLLM has such kernels for GPUs of compute capability 8.0 and newer. All this changes rounding,
    and which prompts dynamic sampling takes, so this setting is of the kind identity.
    """
    eager: bool = runtime(False)
    """Whether vLLM computes without torch.compile and CUDA graphs, which it makes anew at each start and resume.

    Starts are shorter and samples slower. verl turns vLLM's cache of compiled code off, because it was found corrupt
    (vLLM issue 31199); VLLM_DISABLE_COMPILE_CACHE=0 in the environment turns it on again.
    """
    offload: bool = runtime(False)
    """Whether weights and optimizer move to CPU memory while the other engine works."""
    attention: Literal["flash_attention_2", "sdpa"] = runtime("flash_attention_2")
    """Attention implementation in training. Neither computes on padding.

    `sdpa` needs no package, but attends between all tokens of a pass, those of other sequences included, and masks
    them: 1.6 to 2 times the operations of training with the presets. A smaller `max_tokens_per_gpu` lowers that.
    """
    ray_address: str = runtime("")
    """Running Ray cluster to join (`HOST:PORT` or `auto`); empty starts one on this machine."""
    plugin: str = runtime("")
    """Module that each verl process imports first, to add a device or a rollout engine."""
    verl: tuple[str, ...] = later(())
    """Settings of verl that mcpo does not have: a list of `KEY=VALUE` in Hydra's grammar, each in quotes.

    A key that mcpo itself sets is refused, and so is one that verl does not have; `+KEY=VALUE` adds one to a
    group of verl's configuration that allows it. Any of them may change results, so all of them are of the kind
    identity.
    """
    loggers: tuple[str, ...] = runtime(())
    """Trackers that also get all metrics, of both backends: `wandb`, `tensorboard`, `trackio`.

    Each has its account from its own environment variables, such as WANDB_API_KEY. Files are in the attempt's folder.
    """
    launcher: Literal["local", "slurm"] = runtime("local")
    """`slurm` submits each run as a job with `nodes`, `gpus`, `cpus` and `hours`."""
    partition: str = runtime("")
    """SLURM partition; empty means the cluster's default."""
    account: str = runtime("")
    """SLURM account; empty means the cluster's default."""
    hours: int = runtime(24, ge=1)
    """Time limit of a SLURM job."""
