"""What a run costs, from its settings alone: time, memory, disk, and tokens, GPU-hours and checkpoints on GPUs.

The numbers for GPUs are not measured. A token costs 2 operations per weight forward and 4 backward (Kaplan et al.,
arXiv 2001.08361), plus 4 x layers x heads x head_dim for each token it attends to. Time is operations divided by an
H100's peak throughput times the utilisations below. That of sampling is the least certain, so time is a range.
Times are corrected by the steps that were measured in a home (`scheduling.speeds`), so what few runs do beside all of
this, such as ReMax's greedy rollouts and gradients of single prompts, is left to that correction.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from mcpo_cli.config.eval_schedule import eval_problems, eval_steps
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.machine import GIB

KEPT_CHECKPOINTS = 2
"""Checkpoints that backend=verl keeps: the newest, and the one before it in case the newest is damaged."""

PEAK = 989e12
"""Dense bfloat16 operations per second of one H100 or H200 SXM (NVIDIA's data sheet)."""
SLOW_SAMPLING, FAST_SAMPLING = 0.042, 0.068
"""Least and largest share of PEAK that sampling is expected to reach: it is bound by memory bandwidth.

At the paper's shape these are 2,500 and 4,000 tokens per second and GPU of Qwen3-8B.
"""
BANDWIDTH = 3.35e12
"""Bytes per second that one H100 SXM reads from its memory (NVIDIA's data sheet)."""
SLOW_ALONE, FAST_ALONE = 0.29, 0.49
"""Least and largest share of BANDWIDTH at which weights are read for each token of a sequence that is sampled alone.

These are 60 and 100 tokens per second of Qwen3-8B: the last response of a batch, at full length, takes minutes.
"""
TRAINING_UTILISATION = 0.35
"""Share of PEAK that training reaches."""
SAMPLING_ROUNDS = 3
"""Batches that dynamic sampling draws to fill one training batch."""
TRAINING_PASSES, LORA_PASSES = 5, 4
"""Cost of training on a token, in forward passes: one for its old log-probability, one forward, one recomputation of
activations, and two for the backward pass; one with LoRA, which needs no gradients of most weights."""
SECONDS_PER_TOKEN, SECONDS_PER_TOKEN_AND_PARAMETER = 3.7e-6, 1.2e-11
"""Sampling time: a linear fit through toy-s (200k tokens per CPU second) and toy-m (110k), one thread each on an AMD
EPYC with two cores. Rollouts of a group share prefixes, so a token costs less than one forward pass of it."""
OPERATIONS_PER_CORE = 6e10
"""Operations per second of one core in float32, in products of an existing model's sizes (an AMD EPYC with AVX-512: 5
to 6; what rollouts of a group share is computed once)."""
LOADING_SECONDS = 5.0
"""Time in which torch and transformers are loaded on an AMD EPYC with two cores, once for all runs of a plan."""
START_SECONDS = 1.0
"""Time of a worker besides its global steps: it loads its policy, and checks and closes its records."""
LEAST_STEP_SECONDS = 0.15
"""Least time of a global step: records, evaluation and checkpoint (`scale=smoke` next to other work on that machine:
0.16 to 0.25). Without it, smoke's steps would make the machine seem slow, and estimates of its warm-ups would be five
times too long."""
WARMUP_STEPS, WARMUP_PASSES = 450, 11
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
LOGITS_BYTES = 4 * FLOAT * VOCABULARY_NUMBERS
"""Largest size of the tensors with a column for each token of the vocabulary, of which four exist at a time."""
CACHE_BYTES = 4 * GIB
"""Largest memory in bytes of the keys and values of the prompts that are sampled at a time."""


@dataclass(frozen=True)
class GpuCost:
    """Estimated cost of one run on GPUs."""

    least: float
    """GPU-seconds, if sampling reaches FAST_SAMPLING."""
    most: float
    """GPU-seconds, if sampling reaches SLOW_SAMPLING."""
    sampled: float
    """Tokens sampled."""
    trained: float
    """Tokens trained on."""
    checkpoint: int
    """Bytes of one checkpoint."""
    basis: tuple[str, ...] = field(compare=False)
    """The basis of the estimate, in sentences; several runs may share one."""

    @property
    def gpu_seconds(self) -> float:
        """The middle of the range."""
        return (self.least + self.most) / 2

    @property
    def disk(self) -> int:
        """Bytes of the checkpoints that are kept and of the one being written."""
        return (KEPT_CHECKPOINTS + 1) * self.checkpoint

    def measured(self, factor: float, basis: str) -> "GpuCost":
        """The cost if training takes `factor` times `gpu_seconds`, as it was measured; `basis` names the source."""
        seconds = factor * self.gpu_seconds
        return replace(self, least=seconds, most=seconds, basis=(*self.basis, basis))

    def to_json(self) -> dict[str, Any]:
        """The fields that `--dry-run --json` prints."""
        hours = {"gpu_hours": self.gpu_seconds, "gpu_hours_low": self.least, "gpu_hours_high": self.most}
        return {
            **{name: round(seconds / 3600, 1) for name, seconds in hours.items()},
            "tokens_sampled": round(self.sampled),
            "tokens_trained": round(self.trained),
            "checkpoint_bytes": self.checkpoint,
            "disk_bytes": self.disk,
            "basis": "; ".join(self.basis),
        }


@dataclass(frozen=True)
class Cost:
    """What a run costs, all of it, as modelled."""

    training: float
    """Seconds of all global steps, resampling and evaluations."""
    warmup: float
    """Seconds of training the base policy on prompts and their answers."""
    memory: float | None
    """Peak bytes of memory of a run of an existing model on the local engine; None for other runs."""
    disk: float | None
    """Bytes that such a run has on the disk at a time; None for other runs."""
    gpus: GpuCost | None
    """Of a run on GPUs; None for other runs."""


def of(spec: RunSpec) -> Cost:
    """The cost of `spec`."""
    existing = _existing_on_local(spec)
    return Cost(
        training=training_seconds(spec),
        warmup=warmup_seconds(spec),
        memory=memory(spec) if existing else None,
        disk=disk(spec) if existing else None,
        gpus=gpu_cost(spec) if _on_gpus(spec) else None,
    )


def _on_gpus(spec: RunSpec) -> bool:
    return spec.backend == "verl" and spec.compute.device != "cpu"


def _existing_on_local(spec: RunSpec) -> bool:
    return bool(spec.model.path) and spec.backend == "local"


def training_seconds(spec: RunSpec) -> float:
    """Modelled seconds of all global steps, resampling and evaluations."""
    if _on_gpus(spec):
        return gpu_cost(spec).gpu_seconds / (spec.cluster.nodes * spec.cluster.gpus)
    train, existing = spec.train, _existing_on_local(spec)
    _, response = spec.task.expected_tokens(train.max_response)
    # A question is computed once per group. For a small model, the measured time per token includes its prompts.
    question = spec.task.question_tokens() if existing else 0.0
    group = question + train.rollouts * response
    sampled = _rounds(spec) * group
    # Forward and backward pass of an existing model; long groups are computed twice.
    passes = (3 if group <= spec.compute.micro_batch_tokens else 4) if existing else UPDATE
    all_groups = spec.method.dynamic_sampling or "reference_policy" in spec.method.needs
    trained = group * (1.0 if all_groups else GRADIENT_SHARE) * (passes + policies_kept(spec))
    evaluated = _evaluations(spec) * eval_problems(spec) * (question + spec.eval.samples * response)
    tokens = train.steps * train.prompts * (sampled + trained) + resampled_prompts(spec) * group + evaluated
    if existing:
        return tokens * 2.0 * parameters(spec) / (OPERATIONS_PER_CORE * spec.compute.threads)
    return max(_seconds_per_token(spec) * tokens, train.steps * LEAST_STEP_SECONDS)


def warmup_seconds(spec: RunSpec) -> float:
    """Modelled seconds of training the base policy; 0 for an existing model."""
    if spec.model.path:
        return 0.0
    steps = min(WARMUP_STEPS, spec.warmup.max_steps) if spec.warmup.target_accuracy > 0 else 0
    tokens = spec.warmup.batch * sum(spec.task.expected_tokens(spec.train.max_response))
    return _seconds_per_token(spec) * steps * tokens * WARMUP_PASSES


def _seconds_per_token(spec: RunSpec) -> float:
    return SECONDS_PER_TOKEN + SECONDS_PER_TOKEN_AND_PARAMETER * parameters(spec)


def gpu_cost(spec: RunSpec) -> GpuCost:
    """The cost of all global steps, resampling and evaluations of `spec` on GPUs."""
    train, cluster = spec.train, spec.cluster
    prompt, response = spec.task.expected_tokens(train.max_response)
    batch = train.steps * train.prompts * train.rollouts
    evaluated = _evaluations(spec) * eval_problems(spec) * spec.eval.samples
    resampled = resampled_prompts(spec) * train.rollouts
    sampled, trained = (batch * _rounds(spec) + evaluated + resampled) * response, batch * (prompt + response)
    sampling = operations(spec, sampled, 0) / PEAK
    training = operations(spec, 0, trained) / PEAK / TRAINING_UTILISATION
    # A batch ends with its longest response, for which all GPUs wait.
    gpus, read = cluster.nodes * cluster.gpus, BYTES_SAMPLED * parameters(spec) / cluster.tensor_parallel / BANDWIDTH
    tails = train.steps * _rounds(spec) * train.max_response * read * gpus
    least, most = (
        max(sampling / share, tails / alone) + training
        for share, alone in ((FAST_SAMPLING, FAST_ALONE), (SLOW_SAMPLING, SLOW_ALONE))
    )
    # A policy besides the trained one is in float32.
    checkpoint = (BYTES_SAVED + FLOAT * policies_kept(spec)) * trained_parameters(spec)
    checkpoint += BYTES_FROZEN * _frozen_parameters(spec)
    slow, fast = (share * PEAK / operations(spec, 1, 0) for share in (SLOW_SAMPLING, FAST_SAMPLING))
    basis = (
        f"estimated, not measured: responses of {response:,.0f} tokens on average (assumed); "
        f"{SAMPLING_ROUNDS} batches sampled per training batch under dynamic sampling; {resampled_prompts(spec):,} "
        "prompts sampled again by probes, if every cohort is full (probe.prompts); operations per weight and token: 2 "
        f"to sample, {2 * _passes(spec)} to train; an H100 with {PEAK / 1e12:.0f} TFLOP/s, used to "
        f"{TRAINING_UTILISATION:.0%} while training and to {FAST_SAMPLING:.1%} (fewest GPU-hours) or "
        f"{SLOW_SAMPLING:.1%} (most) while sampling; each batch lasts as long as one response of full length alone",
        f"{spec.model.name} then samples {fast:,.0f} or {slow:,.0f} tokens per second and GPU",
    )
    return GpuCost(least, most, sampled, trained, checkpoint, basis)


def memory(spec: RunSpec) -> float:
    """Peak bytes of one run of an existing model on the local engine: the larger of two phases.

    An update has weights, gradients, moments, activations and logits; sampling has weights, moments, keys and values.
    """
    train, model = spec.train, spec.model
    weights, trained = FLOAT * parameters(spec), FLOAT * trained_parameters(spec)
    state = weights + 2 * trained + trained * policies_kept(spec)
    prompt, response = spec.task.expected_tokens(train.max_response)
    group = prompt + train.rollouts * (train.max_response if response > train.max_response / 2 else 2 * response)
    kept = min(spec.compute.micro_batch_tokens, min(train.mini_batch, spec.compute.micro_batch) * group)
    query, key = model.heads * model.head_dim, _kv_heads(model) * model.head_dim
    a_row = FLOAT * model.layers * (8 * model.hidden + 5 * (query + 2 * key) // 2 + 4 * model.mlp)
    updating = weights + kept * a_row + LOGITS_BYTES
    a_slot = 2 * FLOAT * model.layers * key
    # The buffer of keys and values doubles when it is too small.
    sampling = 2 * min(CACHE_BYTES, train.prompts * (prompt + train.rollouts * train.max_response) * a_slot)
    return OVERHEAD_BYTES + state + max(updating, sampling)


def disk(spec: RunSpec) -> float:
    """Bytes that such a run has on the disk at a time: its checkpoints, the one being written, and the policy.

    Records are left out, because they are much smaller.
    """
    checkpoint = FLOAT * trained_parameters(spec) * (3 + policies_kept(spec))
    return (spec.compute.checkpoints + 1) * checkpoint + FLOAT * parameters(spec)


def gpu_bytes(spec: RunSpec) -> dict[str, float]:
    """The least memory in bytes that one GPU needs while it `trains` and while it `samples`.

    Training: the GPU's share of the training state, plus one micro-batch's bfloat16 logits with their gradient (none
    with `cluster.fused_kernels`) and its input to each layer. Sampling: the GPU's share of the weights and of one
    sequence's key-value cache, which must fit into the fraction `cluster.gpu_memory` of the GPU.
    """
    model, cluster, train = spec.model, spec.cluster, spec.train
    state = BYTES_TRAINED * trained_parameters(spec) + BYTES_FROZEN * _frozen_parameters(spec)
    shared = state / (cluster.nodes * cluster.gpus)
    logits = 0 if cluster.fused_kernels else 2 * BYTES_SAMPLED * cluster.max_tokens_per_gpu * vocabulary(spec)
    inputs = BYTES_SAMPLED * cluster.max_tokens_per_gpu * model.layers * model.hidden
    # `sdpa` masks pairs of tokens of a pass: booleans, and torch's copy of them in bfloat16.
    mask = (1 + BYTES_SAMPLED) * cluster.max_tokens_per_gpu**2 if cluster.attention == "sdpa" else 0
    cache = 2 * BYTES_SAMPLED * model.layers * _kv_heads(model) * model.head_dim
    sampled = parameters(spec) + (trained_parameters(spec) if model.lora_rank else 0)
    sampling = BYTES_SAMPLED * sampled + cache * (train.max_prompt + train.max_response)
    samples = sampling / cluster.tensor_parallel / cluster.gpu_memory
    return {"trains": shared + logits + inputs + mask, "samples": samples}


def operations(spec: RunSpec, sampled: float, trained: float) -> float:
    """Floating-point operations of sampling and of training on these numbers of tokens, at the expected context."""
    prompt, response = spec.task.expected_tokens(spec.train.max_response)
    return _operations(spec, context=prompt + response / 2) * (sampled + _passes(spec) * trained)


def sdpa_factor(spec: RunSpec) -> float:
    """The factor by which `cluster.attention=sdpa` multiplies the operations of training, if every pass is full.

    A token then attends to every token of its pass instead of those before it in its own sequence.
    """
    prompt, response = spec.task.expected_tokens(spec.train.max_response)
    full, alone = spec.cluster.max_tokens_per_gpu, prompt + response / 2
    return _operations(spec, context=full) / _operations(spec, context=alone)


def _operations(spec: RunSpec, context: float) -> float:
    """Floating-point operations of one token's forward pass; the embedding look-up costs none."""
    model = spec.model
    embedding = 0 if model.tied else model.hidden * vocabulary(spec)
    return 2 * (parameters(spec) - embedding) + 4 * model.layers * model.heads * model.head_dim * context


def _passes(spec: RunSpec) -> int:
    return (LORA_PASSES if spec.model.lora_rank else TRAINING_PASSES) + policies_kept(spec)


def policies_kept(spec: RunSpec) -> int:
    """Number of policies that the method of `spec` needs besides the trained one."""
    return len(spec.method.needs & {"previous_policy", "reference_policy"})


def _rounds(spec: RunSpec) -> int:
    """Batches that one global step samples."""
    return SAMPLING_ROUNDS if spec.method.dynamic_sampling else 1


def _evaluations(spec: RunSpec) -> int:
    """Number of evaluations, if every global step samples `_rounds` batches."""
    train = spec.train
    rollouts = train.prompts * train.rollouts * _rounds(spec)
    return len(eval_steps(spec, {step: step * rollouts for step in range(1, train.steps + 1)}))


def resampled_prompts(spec: RunSpec) -> int:
    """Number of prompts that probes sample again, one group of rollouts each, if every cohort is full."""
    probe, steps = spec.probe, spec.train.steps
    cohorts = sum(max(0, steps - lag) // probe.every for lag in probe.lags) if probe.every else 0
    panels = math.ceil(steps / probe.panel_every) if probe.panel_every else 0
    return cohorts * min(probe.prompts, spec.train.prompts) + panels * probe.panel


def parameters(spec: RunSpec) -> int:
    """Number of weights in layers and embeddings; norms are negligible."""
    return spec.model.parameters_with(vocabulary(spec))


def trained_parameters(spec: RunSpec) -> int:
    """Number of weights that are trained: all, or with LoRA the two matrices of each linear layer of the blocks."""
    model, rank = spec.model, spec.model.lora_rank
    if not rank:
        return parameters(spec)
    queries, keys = model.heads * model.head_dim, _kv_heads(model) * model.head_dim
    attention = 2 * (model.hidden + queries) + 2 * (model.hidden + keys)
    return model.layers * rank * (attention + 3 * (model.hidden + model.mlp))


def _frozen_parameters(spec: RunSpec) -> int:
    return parameters(spec) if spec.model.lora_rank else 0


def _kv_heads(model: Model) -> int:
    return model.kv_heads or model.heads


def vocabulary(spec: RunSpec) -> int:
    """Number of rows of the embedding."""
    return spec.model.vocabulary or len(spec.task.vocabulary)
