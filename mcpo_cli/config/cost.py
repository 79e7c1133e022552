"""What a run costs, from its settings alone: time, memory, disk, and tokens, GPU-hours and checkpoints on GPUs.

The numbers for GPUs are not measured. A token costs 2 operations per weight forward and 4 backward (Kaplan et al.,
arXiv 2001.08361), plus 4 x layers x heads x head_dim for each token it attends to. Time is operations divided by an
H100's peak throughput times the utilisations below; the speed of sampling is the least certain part. Times are
corrected by the steps that were measured in a home (`scheduling.speeds`). That correction also covers what is rare or
costs a few per cent: prompts that probes sample again, ReMax's greedy rollouts, gradients of single prompts.
"""

from dataclasses import dataclass
from typing import Any

from mcpo_cli.config.eval_schedule import eval_problems, eval_steps
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.machine import GIB

KEPT_CHECKPOINTS = 2
"""Checkpoints that backend=verl keeps: the newest, and the one before it in case the newest is damaged."""

PEAK = 989e12
"""Dense bfloat16 operations per second of one H100 or H200 SXM (NVIDIA's data sheet)."""
SAMPLING_UTILISATION = 0.052
"""Share of PEAK that sampling reaches: 3,100 tokens per second and GPU of Qwen3-8B at the paper's lengths."""
TRAINING_UTILISATION = 0.35
"""Share of PEAK that training reaches."""
SAMPLING_ROUNDS = 3
"""Batches that dynamic sampling draws to fill one training batch."""
TRAINING_PASSES, LORA_PASSES = 5, 4
"""Cost of training on a token, in forward passes: one for its old log-probability, one forward, one recomputation of
activations, and two for the backward pass, or one with LoRA, which needs no gradients of most weights."""
SECONDS_PER_TOKEN, SECONDS_PER_TOKEN_AND_PARAMETER = 5.5e-6, 1.8e-11
"""Time to sample a token, and its share of grading, probes and records: CPU seconds of whole runs of toy-s and toy-m,
one thread each on an AMD EPYC with two cores. Sampling alone is 117k to 200k tokens per CPU second of toy-s, depending
on what else uses the caches. Rollouts of a group share prefixes, so a token costs less than one forward pass of it."""
OPERATIONS_PER_CORE = 6e10
"""Operations per second of one core in float32, in products of an existing model's sizes (an AMD EPYC with AVX-512: 5
to 6; what rollouts of a group share is computed once)."""
LOADING_SECONDS = 5.0
"""Time until torch and transformers are loaded, once for all runs of a plan: half of 6 CPU seconds of the workers' fork
server and 4 of the command, which work at the same time."""
START_SECONDS = 1.0
"""Time of a worker besides its global steps: it loads its policy, and checks and closes its records."""
WARMUP_STEPS, WARMUP_PASSES = 450, 7.5
"""Typical number of steps until a warm-up reaches its target accuracy; and the cost of such a step, which is in double
precision and shares no prefixes, relative to sampling its tokens."""
GRADIENT_SHARE = 0.5
"""Share of a batch's groups that have a gradient, unless the sampler or a penalty gives all of them one."""
UPDATE = 1.7
"""Update cost relative to sampling the groups that have a gradient (toy-s and toy-m)."""

BYTES_SAVED, BYTES_TRAINED = 12, 16
"""Bytes per trained weight in float32: in a checkpoint, weight and two moments; in training, a gradient, too."""
BYTES_FROZEN = 4
"""Bytes per other weight in training and in a checkpoint (LoRA): float32, as FSDP wants one type for all."""
BYTES_SAMPLED = 2
"""Bytes per weight in the rollout engine, and per number in its key-value cache: bfloat16."""
FLOAT = 4
"""Bytes of a number in float32."""
OVERHEAD_BYTES = 0.6e9
"""Memory of a process that has loaded torch and transformers."""
VOCABULARY_NUMBERS = 2**25
"""Largest number of elements of a tensor with a column for each token of the vocabulary (128 MiB in float32)."""
PIECES_KEPT = 4
"""Most such tensors that an update keeps for its backward pass; if there are more, all of them are computed again."""
PIECES_IN_USE = 3
"""Further such tensors that exist at a time."""
CACHE_BYTES = 4 * GIB
"""Largest memory in bytes of the keys and values of the prompts that are sampled at a time."""


@dataclass(frozen=True)
class GpuCost:
    """Estimated cost of one run on GPUs."""

    seconds: float
    """GPU-seconds of all global steps and evaluations."""
    sampled: float
    """Tokens sampled."""
    trained: float
    """Tokens trained on."""
    checkpoint: int
    """Bytes of one checkpoint."""
    memory: float
    """The least bytes of memory that each GPU must have."""

    @property
    def disk(self) -> int:
        """Bytes of the checkpoints that are kept and of the one being written."""
        return (KEPT_CHECKPOINTS + 1) * self.checkpoint

    def to_json(self) -> dict[str, Any]:
        """The fields that `--dry-run --json` prints."""
        return {
            "gpu_hours": round(self.seconds / 3600, 1),
            "tokens_sampled": round(self.sampled),
            "tokens_trained": round(self.trained),
            "checkpoint_bytes": self.checkpoint,
            "disk_bytes": self.disk,
            "gpu_memory_bytes": round(self.memory),
        }


@dataclass(frozen=True)
class Weights:
    """The numbers that a run's policy consists of; norms are negligible."""

    rows: int
    """Rows of the embedding."""
    count: int
    """Weights in layers and embeddings."""
    trained: int
    """Weights that are trained: all, or with LoRA the two matrices of each linear layer of the blocks."""
    kept: int
    """Policies that the method needs besides the trained policy."""

    @property
    def frozen(self) -> int:
        """Weights that are not trained: with LoRA all that the model has, else none."""
        return 0 if self.trained == self.count else self.count

    @property
    def checkpoint(self) -> int:
        """Bytes of one checkpoint of verl."""
        # A policy besides the trained one is in float32.
        return (BYTES_SAVED + FLOAT * self.kept) * self.trained + BYTES_FROZEN * self.frozen


def weights(spec: RunSpec) -> Weights:
    """The numbers of weights of a run's policy."""
    model, rank, rows = spec.model, spec.model.lora_rank, spec.model.vocabulary or len(spec.task.vocabulary)
    count = trained = model.parameters_with(rows)
    if rank:
        queries, keys = model.heads * model.head_dim, model.heads_of_keys * model.head_dim
        attention = 2 * (model.hidden + queries) + 2 * (model.hidden + keys)
        trained = model.layers * rank * (attention + 3 * (model.hidden + model.mlp))
    return Weights(rows, count, trained, len(spec.method.needs & {"previous_policy", "reference_policy"}))


@dataclass(frozen=True)
class Estimate:
    """What a run of `spec` costs: modelled seconds, bytes on this machine, and what it costs on GPUs."""

    spec: RunSpec
    training: float
    """Seconds of all global steps and evaluations."""
    evaluation: float
    """Seconds of one evaluation."""
    warmup: float = 0.0
    """Seconds of training the base policy; 0 for an existing model."""
    memory: float = 0.0
    """Peak bytes of memory on the local engine."""
    disk: float = 0.0
    """Bytes that the run has on the disk at a time on the local engine."""
    gpus: GpuCost | None = None
    """None if the run does not train on GPUs."""

    @property
    def existing(self) -> bool:
        """Whether the local engine trains an existing model, whose `memory` and `disk` matter."""
        return _existing_on_local(self.spec)


def _existing_on_local(spec: RunSpec) -> bool:
    return bool(spec.model.path) and spec.backend == "local"


def estimate(spec: RunSpec) -> Estimate:
    """What a run costs, from its settings alone."""
    train, samples, problems, policy = spec.train, spec.eval.samples, eval_problems(spec), weights(spec)
    prompt, response = spec.task.expected_tokens(train.max_response)
    evaluations, rounds = len(eval_steps(spec)), SAMPLING_ROUNDS if spec.method.dynamic_sampling else 1
    if spec.backend == "verl" and spec.compute.device != "cpu":
        batch, eval_samples = train.steps * train.prompts * train.rollouts, problems * samples
        sampled, trained = (batch * rounds + evaluations * eval_samples) * response, batch * (prompt + response)
        sample_seconds = _operations(spec, policy, 1, 0) / PEAK / SAMPLING_UTILISATION
        seconds = sampled * sample_seconds + trained * _operations(spec, policy, 0, 1) / PEAK / TRAINING_UTILISATION
        gpus = spec.cluster.nodes * spec.cluster.gpus
        cost = GpuCost(seconds, sampled, trained, policy.checkpoint, max(gpu_bytes(spec).values()))
        return Estimate(spec, seconds / gpus, eval_samples * response * sample_seconds / gpus, gpus=cost)
    is_existing = _existing_on_local(spec)
    token_seconds = SECONDS_PER_TOKEN + SECONDS_PER_TOKEN_AND_PARAMETER * policy.count
    if is_existing:
        token_seconds = 2.0 * policy.count / (OPERATIONS_PER_CORE * spec.compute.threads)
    # A question is computed once. For a small model, the measured time per token includes its prompts.
    question = spec.task.question_tokens() if is_existing else 0.0
    evaluation = token_seconds * problems * (question + samples * response)
    group = question + train.rollouts * response
    # Forward and backward pass of an existing model; long groups are computed twice.
    passes = (3 if group <= spec.compute.micro_batch_tokens else 4) if is_existing else UPDATE
    all_groups = spec.method.dynamic_sampling or "reference_policy" in spec.method.needs
    per_group = rounds + (1.0 if all_groups else GRADIENT_SHARE) * (passes + policy.kept)
    steps = token_seconds * train.steps * train.prompts * group * per_group
    warmup_steps = min(WARMUP_STEPS, spec.warmup.max_steps) if spec.warmup.target_accuracy > 0 else 0
    warmup = token_seconds * warmup_steps * spec.warmup.batch * (prompt + response) * WARMUP_PASSES
    # Checkpoints, the one being written, and the policy; records are much smaller.
    disk = (spec.compute.checkpoints + 1) * FLOAT * policy.trained * (3 + policy.kept) + FLOAT * policy.count
    training_seconds, warmup_seconds = steps + evaluations * evaluation, 0.0 if spec.model.path else warmup
    return Estimate(spec, training_seconds, evaluation, warmup_seconds, _memory(spec, policy), disk)


def _memory(spec: RunSpec, policy: Weights) -> float:
    """Peak bytes of one run on the local engine: the larger of two phases.

    An update has weights, gradients, moments, activations and logits; sampling has weights, moments, keys and values.
    """
    train, model = spec.train, spec.model
    weight_bytes, trained_bytes = FLOAT * policy.count, FLOAT * policy.trained
    state = weight_bytes + 2 * trained_bytes + trained_bytes * policy.kept
    prompt, response = spec.task.expected_tokens(train.max_response)
    group = prompt + train.rollouts * (train.max_response if response > train.max_response / 2 else 2 * response)
    tokens = min(spec.compute.micro_batch_tokens, min(train.mini_batch, spec.compute.micro_batch) * group)
    query, key = model.heads * model.head_dim, model.heads_of_keys * model.head_dim
    row_bytes = FLOAT * model.layers * (8 * model.hidden + 5 * (query + 2 * key) // 2 + 4 * model.mlp)
    pieces = PIECES_IN_USE * VOCABULARY_NUMBERS + min(PIECES_KEPT * VOCABULARY_NUMBERS, tokens * policy.rows)
    updating = weight_bytes + tokens * row_bytes + FLOAT * pieces
    slot_bytes = 2 * FLOAT * model.layers * key
    # The buffer of keys and values grows by a quarter when it is too small.
    sampling = 1.25 * min(CACHE_BYTES, train.prompts * (prompt + train.rollouts * train.max_response) * slot_bytes)
    return OVERHEAD_BYTES + state + max(updating, sampling)


def gpu_bytes(spec: RunSpec) -> dict[str, float]:
    """The least memory in bytes that one GPU needs while it `trains` and while it `samples`.

    Training: the GPU's share of the training state, plus one micro-batch's bfloat16 logits with their gradient (none
    with `cluster.fused_kernels`) and its input to each layer. Sampling: the GPU's share of the weights and of one
    sequence's key-value cache, which must fit into the fraction `cluster.gpu_memory` of the GPU.
    """
    model, cluster, train, policy = spec.model, spec.cluster, spec.train, weights(spec)
    state = BYTES_TRAINED * policy.trained + BYTES_FROZEN * policy.frozen
    state_share = state / (cluster.nodes * cluster.gpus)
    logits = 0 if cluster.fused_kernels else 2 * BYTES_SAMPLED * cluster.max_tokens_per_gpu * policy.rows
    inputs = BYTES_SAMPLED * cluster.max_tokens_per_gpu * model.layers * model.hidden
    # `sdpa` masks pairs of tokens of a pass: booleans, and torch's copy of them in bfloat16.
    mask = (1 + BYTES_SAMPLED) * cluster.max_tokens_per_gpu**2 if cluster.attention == "sdpa" else 0
    cache = 2 * BYTES_SAMPLED * model.layers * model.heads_of_keys * model.head_dim
    weight_count = policy.count + (policy.trained if model.lora_rank else 0)
    sampling_bytes = BYTES_SAMPLED * weight_count + cache * (train.max_prompt + train.max_response)
    sampling_need = sampling_bytes / cluster.tensor_parallel / cluster.gpu_memory
    return {"trains": state_share + logits + inputs + mask, "samples": sampling_need}


def operations(spec: RunSpec, sampled: float, trained: float) -> float:
    """Floating-point operations of sampling and of training on these numbers of tokens, at the expected context."""
    return _operations(spec, weights(spec), sampled, trained)


def _operations(spec: RunSpec, policy: Weights, sampled: float, trained: float) -> float:
    model = spec.model
    prompt, response = spec.task.expected_tokens(spec.train.max_response)
    embedding = 0 if model.tied else model.hidden * policy.rows  # Looking it up costs none.
    attention = 4 * model.layers * model.heads * model.head_dim * (prompt + response / 2)
    passes = (LORA_PASSES if model.lora_rank else TRAINING_PASSES) + policy.kept
    return (2 * (policy.count - embedding) + attention) * (sampled + passes * trained)
