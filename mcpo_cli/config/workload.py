"""The work of a run, from its settings alone: evaluations, tokens, operations and seconds.

The numbers for GPUs are not measured. A token costs 2 operations per weight forward and 4 backward (Kaplan et al.,
arXiv 2001.08361), plus 4 x layers x heads x head_dim for each token it attends to. Time is operations divided by an
H100's peak throughput times the utilisations below. That of sampling is the least certain, so time is a range.

`mean_response` is the mean length of a response in tokens; None means what the task assumes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from mcpo_cli.config.schema import Model, RunSpec

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
BYTES_SAVED = 12
"""Bytes per trained weight in a checkpoint: weight and two moments, in float32."""
BYTES_FROZEN = 4
"""Bytes per other weight in training and in a checkpoint (LoRA): float32, as FSDP wants one type for all."""
BYTES_PREVIOUS = 4
"""More per trained weight where the method needs the previous policy, too."""
BYTES_SAMPLED = 2
"""Bytes per weight in the rollout engine, and per number in its key-value cache: bfloat16."""
SECONDS_PER_TOKEN = 3.7e-6
SECONDS_PER_TOKEN_AND_PARAMETER = 1.2e-11
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
WARMUP_STEPS = 450
"""Typical number of steps until a warm-up reaches its target accuracy."""
GRADIENT_SHARE = 0.5
"""Share of a batch's groups that have a gradient, unless the sampler or a penalty gives all of them one."""
UPDATE = 1.7
"""Update cost relative to sampling the groups that have a gradient (toy-s and toy-m)."""
SINGLE_PASSES = 9
"""Cost of a single prompt's gradient (`probe.gradients_every`), in forward passes of its group: a forward and a
backward pass for its direction, a second time for products, and for the contrast of correct and incorrect rollouts."""
WARMUP_PASSES = 11
"""Cost of a supervised training step, which is in double precision and shares no prefixes, relative to sampling its
tokens."""


@dataclass(frozen=True)
class Cost:
    """Estimated cost of one run."""

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

    def corrected(self, spec: RunSpec, factor: float | None, how: str) -> "Cost":
        """The cost of `spec` if training takes `factor` times `gpu_seconds`, as it was measured; `how` is the basis."""
        if not factor:
            return self
        measured = factor * self.gpu_seconds
        basis = f"GPU-hours of {spec.run_id}: {factor:.2f} times the {how}"
        return replace(self, least=measured, most=measured, basis=(*self.basis, basis))

    @property
    def disk(self) -> int:
        """Bytes of the checkpoints that are kept and of the one being written."""
        return (KEPT_CHECKPOINTS + 1) * self.checkpoint

    def to_json(self) -> dict[str, Any]:
        """The fields that `--dry-run --json` prints."""
        return {
            "gpu_hours": round(self.gpu_seconds / 3600, 1),
            "gpu_hours_low": round(self.least / 3600, 1),
            "gpu_hours_high": round(self.most / 3600, 1),
            "tokens_sampled": round(self.sampled),
            "tokens_trained": round(self.trained),
            "checkpoint_bytes": self.checkpoint,
            "disk_bytes": self.disk,
            "basis": "; ".join(self.basis),
        }


def _basis(spec: RunSpec, mean_response: float | None) -> tuple[str, str]:
    """The basis of the cost of `spec`, in words: the part that most runs share, and the sampling speed of its model."""
    response = lengths(spec, mean_response)[1]
    source = "assumed; --mean-length sets it" if mean_response is None else "--mean-length"
    slow, fast = (share * PEAK / operations(spec, 1, 0, mean_response) for share in (SLOW_SAMPLING, FAST_SAMPLING))
    return (
        f"estimated, not measured: responses of {response:,.0f} tokens on average ({source}); "
        f"{SAMPLING_ROUNDS} batches sampled per training batch under dynamic sampling; {resampled_prompts(spec):,} "
        "prompts sampled again by probes, if every cohort is full (probe.prompts); operations per weight and token: 2 "
        f"to sample, {2 * _passes(spec)} to train; an H100 with {PEAK / 1e12:.0f} TFLOP/s, used to "
        f"{TRAINING_UTILISATION:.0%} while training and to {FAST_SAMPLING:.1%} (fewest GPU-hours) or "
        f"{SLOW_SAMPLING:.1%} (most) while sampling; each batch lasts as long as one response of full length alone",
        f"{spec.model.name} then samples {fast:,.0f} or {slow:,.0f} tokens per second and GPU",
    )


def cost(spec: RunSpec, mean_response: float | None = None) -> Cost:
    """The cost of all global steps, resampling and evaluations of `spec`."""
    train = spec.train
    prompt, response = lengths(spec, mean_response)
    batch = train.steps * train.prompts * train.rollouts
    evaluated = evaluations(spec) * eval_problems(spec) * spec.eval.samples
    beside = resampled_prompts(spec) * train.rollouts + train.steps * train.prompts * greedy(spec)
    sampled, trained = (batch * rounds(spec) + evaluated + beside) * response, batch * (prompt + response)
    sampling = operations(spec, sampled, 0, mean_response) / PEAK
    training = operations(spec, 0, trained, mean_response) / PEAK / TRAINING_UTILISATION
    # A batch ends with its longest response, for which all GPUs wait.
    cluster = spec.cluster
    gpus, read = cluster.nodes * cluster.gpus, BYTES_SAMPLED * parameters(spec) / cluster.tensor_parallel / BANDWIDTH
    tails = train.steps * rounds(spec) * train.max_response * read * gpus
    least, most = (
        max(sampling / share, tails / alone) + training
        for share, alone in ((FAST_SAMPLING, FAST_ALONE), (SLOW_SAMPLING, SLOW_ALONE))
    )
    saved = BYTES_SAVED + BYTES_PREVIOUS * policies_kept(spec)
    checkpoint = saved * trained_parameters(spec) + BYTES_FROZEN * frozen_parameters(spec)
    return Cost(least, most, sampled, trained, checkpoint, _basis(spec, mean_response))


def policies_kept(spec: RunSpec) -> int:
    """Number of policies that the method of `spec` needs besides the trained one."""
    return len(spec.method.needs & {"previous_policy", "reference_policy"})


def on_gpus(spec: RunSpec) -> bool:
    """True if `spec` trains on GPUs, which `cost` models."""
    return spec.backend == "verl" and spec.compute.device != "cpu"


def existing_on_local(spec: RunSpec) -> bool:
    """True if `spec` trains an existing model on the local engine, which `space` models."""
    return bool(spec.model.path) and spec.backend == "local"


def training_seconds(spec: RunSpec, mean_response: float | None = None) -> float:
    """Modelled seconds of all global steps, resampling and evaluations."""
    if on_gpus(spec):
        return cost(spec, mean_response).gpu_seconds / (spec.cluster.nodes * spec.cluster.gpus)
    train, existing = spec.train, existing_on_local(spec)
    response = lengths(spec, mean_response)[1]
    # A question is computed once per group. For a small model, the measured time per token includes its prompts.
    question = spec.task.question_tokens() if existing else 0.0
    group = question + train.rollouts * response
    sampled = rounds(spec) * group + greedy(spec) * (question + response)
    update = _forward_and_backward(spec, group) if existing else UPDATE
    trained = group * gradient_share(spec) * (update + policies_kept(spec))
    evaluated = evaluations(spec) * eval_problems(spec) * (question + spec.eval.samples * response)
    probed = (resampled_prompts(spec) + SINGLE_PASSES * single_gradients(spec)) * group
    tokens = train.steps * train.prompts * (sampled + trained) + probed + evaluated
    if existing:
        return tokens * 2.0 * parameters(spec) / (OPERATIONS_PER_CORE * spec.compute.threads)
    return max(_seconds_per_token(spec) * tokens, train.steps * LEAST_STEP_SECONDS)


def seconds_left(
    spec: RunSpec, mean_response: float | None = None, *, done_steps: int = 0, factor: float = 1, warmup: bool = False
) -> float:
    """Seconds until the run ends, if everything takes `factor` times as long as modelled.

    warmup: whether it trains its base policy first.
    """
    training = training_seconds(spec, mean_response) * (1 - done_steps / spec.train.steps)
    return START_SECONDS + factor * (training + (warmup_seconds(spec) if warmup else 0.0))


def warmup_seconds(spec: RunSpec) -> float:
    """Modelled seconds of training the base policy on prompts and their answers."""
    if spec.model.path:
        return 0.0
    steps = min(WARMUP_STEPS, spec.warmup.max_steps) if spec.warmup.target_accuracy > 0 else 0
    tokens = spec.warmup.batch * sum(spec.task.expected_tokens(spec.train.max_response))
    return _seconds_per_token(spec) * steps * tokens * WARMUP_PASSES


def _seconds_per_token(spec: RunSpec) -> float:
    return SECONDS_PER_TOKEN + SECONDS_PER_TOKEN_AND_PARAMETER * parameters(spec)


def operations(spec: RunSpec, sampled: float, trained: float, mean_response: float | None = None) -> float:
    """Floating-point operations of sampling and of training on these numbers of tokens, at the expected context."""
    prompt, response = lengths(spec, mean_response)
    return _operations(spec, context=prompt + response / 2) * (sampled + _passes(spec) * trained)


def lengths(spec: RunSpec, mean_response: float | None) -> tuple[float, float]:
    """Mean tokens of a prompt and of a response."""
    prompt, response = spec.task.expected_tokens(spec.train.max_response)
    return prompt, response if mean_response is None else mean_response


def _forward_and_backward(spec: RunSpec, group: float) -> int:
    """Cost of training on a token of an existing model, in forward passes; long groups are computed twice."""
    return 3 if group <= spec.compute.micro_batch_tokens else 4


def gradient_share(spec: RunSpec) -> float:
    """Share of a batch's groups that have a gradient: all of them under a filter or a penalty."""
    return 1.0 if spec.method.dynamic_sampling or "reference_policy" in spec.method.needs else GRADIENT_SHARE


def rounds(spec: RunSpec) -> int:
    """Batches that one global step samples."""
    return SAMPLING_ROUNDS if spec.method.dynamic_sampling else 1


def greedy(spec: RunSpec) -> int:
    """Rollouts of one prompt of a batch besides its group, for the method's baseline (ReMax)."""
    return int("greedy_reward" in spec.method.needs)


def eval_problems(spec: RunSpec) -> int:
    """Number of held-out problems in one evaluation, over all tiers."""
    return sum(spec.task.tier_sizes(spec.eval.problems).values())


def eval_steps(spec: RunSpec, rollouts: Mapping[int, float] = MappingProxyType({})) -> list[int]:
    """The global steps after which the policy is evaluated: 0 (the base policy), every `eval.every` and the last.

    rollouts: step -> all rollouts sampled up to it (`cost/rollouts`). Among these steps, those that pass a multiple of
    `eval.every_rollouts` are evaluated too; only the records tell how many rollouts dynamic sampling took.
    """
    steps, every = spec.train.steps, spec.eval.every_rollouts
    passed = {step for step, total in rollouts.items() if every and total // every > rollouts.get(step - 1, 0) // every}
    return sorted({0, *range(spec.eval.every, steps + 1, spec.eval.every), steps, *passed})


def evaluations(spec: RunSpec) -> int:
    """Number of evaluations, if every global step samples `rounds` batches."""
    train = spec.train
    rollouts = train.prompts * train.rollouts * rounds(spec)
    return len(eval_steps(spec, {step: step * rollouts for step in range(1, train.steps + 1)}))


def resampled_prompts(spec: RunSpec) -> int:
    """Number of prompts that probes sample again, one group of rollouts each, if every cohort is full."""
    probe, steps = spec.probe, spec.train.steps
    cohorts = sum(max(0, steps - lag) // probe.every for lag in probe.lags) if probe.every else 0
    panels = math.ceil(steps / probe.panel_every) if probe.panel_every else 0
    return cohorts * min(probe.prompts, spec.train.prompts) + panels * probe.panel


def single_gradients(spec: RunSpec) -> int:
    """Number of prompts whose own gradients probes measure, if enough groups are mixed and mastered."""
    probe, train = spec.probe, spec.train
    due = math.ceil(train.steps / probe.gradients_every) if probe.gradients_every else 0
    return due * min(2 * probe.gradient_prompts, train.prompts)


def parameters(spec: RunSpec) -> int:
    """Number of weights in layers and embeddings; norms are negligible."""
    return model_parameters(spec.model, vocabulary(spec))


def model_parameters(model: Model, rows: int | None = None) -> int:
    """Number of weights of a model by its sizes. rows: of the embedding, by default those of the model's files."""
    heads = 2 * (model.heads + kv_heads(model))
    layers = model.layers * (heads * model.hidden * model.head_dim + 3 * model.hidden * model.mlp)
    return layers + model.hidden * (model.vocabulary if rows is None else rows) * (1 if model.tied else 2)


def trained_parameters(spec: RunSpec) -> int:
    """Number of weights that are trained: all, or with LoRA the two matrices of each linear layer of the blocks."""
    model, rank = spec.model, spec.model.lora_rank
    if not rank:
        return parameters(spec)
    queries, keys = model.heads * model.head_dim, kv_heads(model) * model.head_dim
    attention = 2 * (model.hidden + queries) + 2 * (model.hidden + keys)
    return model.layers * rank * (attention + 3 * (model.hidden + model.mlp))


def frozen_parameters(spec: RunSpec) -> int:
    """Number of frozen weights."""
    return parameters(spec) if spec.model.lora_rank else 0


def kv_heads(model: Model) -> int:
    """Number of key-value heads."""
    return model.kv_heads or model.heads


def vocabulary(spec: RunSpec) -> int:
    """Number of rows of the embedding."""
    return spec.model.vocabulary or len(spec.task.vocabulary)


def sdpa_factor(spec: RunSpec) -> float:
    """The factor by which `cluster.attention=sdpa` multiplies the operations of training, if every pass is full.

    A token then attends to every token of its pass instead of those before it in its own sequence.
    """
    prompt, response = spec.task.expected_tokens(spec.train.max_response)
    full, own = spec.cluster.max_tokens_per_gpu, prompt + response / 2
    return _operations(spec, context=full) / _operations(spec, context=own)


def _passes(spec: RunSpec) -> int:
    return (LORA_PASSES if spec.model.lora_rank else TRAINING_PASSES) + policies_kept(spec)


def _operations(spec: RunSpec, context: float) -> float:
    """Floating-point operations of one token's forward pass; the embedding look-up costs none."""
    model = spec.model
    embedding = 0 if model.tied else model.hidden * vocabulary(spec)
    return 2 * (parameters(spec) - embedding) + 4 * model.layers * model.heads * model.head_dim * context
