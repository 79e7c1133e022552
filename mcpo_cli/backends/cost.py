"""What a run on GPUs costs, from its settings alone: floating-point operations, GPU-hours, tokens, memory, disk.

Nothing here was measured. A token costs 2 operations a weight forward and 4 backward (Kaplan et al., arXiv
2001.08361), and attention 4 x layers x heads x head_dim a token it looks back on. Time is operations over the peak of
an H100 at the utilisations below.
"""

import math
from dataclasses import dataclass
from typing import Any

from mcpo_cli.backends.base import KEPT_CHECKPOINTS
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.runs.attempts import eval_problems, eval_steps

PEAK = 989e12
"""bfloat16 operations a second of one H100 or H200 SXM, dense (NVIDIA's data sheet)."""
SAMPLING_UTILISATION = 0.10
"""Sampling waits for memory, not for arithmetic."""
TRAINING_UTILISATION = 0.35
SAMPLING_ROUNDS = 3
"""Batches that dynamic sampling draws to fill one."""
TRAINING_PASSES = 5
"""Forward passes that a trained token is worth: one for its old log-probability, one forward, one more as activations
are not kept, and two for the backward pass."""
BYTES_TRAINED = 16
"""A weight in training: itself, its gradient and two moments, in float32."""
BYTES_SAVED = 12
"""A weight in a checkpoint: itself and two moments."""
BYTES_SAMPLED = 2
"""A weight in the rollout engine, and a number in its cache of keys and values: bfloat16."""


@dataclass(frozen=True)
class Cost:
    """Of one run. sampled, trained: tokens. checkpoint: bytes of one."""

    gpu_seconds: float
    sampled: float
    trained: float
    checkpoint: int

    @property
    def disk(self) -> int:
        """Bytes of checkpoints that stay, and of the one that is being written."""
        return (KEPT_CHECKPOINTS + 1) * self.checkpoint

    def to_json(self) -> dict[str, Any]:
        """As `mcpo plan --json` prints it."""
        return {
            "gpu_hours": round(self.gpu_seconds / 3600, 1),
            "tokens_sampled": round(self.sampled),
            "tokens_trained": round(self.trained),
            "checkpoint_bytes": self.checkpoint,
            "disk_bytes": self.disk,
        }


def basis(spec: RunSpec) -> str:
    """How the cost of `spec` was estimated, in words."""
    _, response = spec.task.expected_tokens(spec.train.max_response)
    return (
        f"estimated, not measured: responses of {response:,.0f} tokens on average; "
        f"{SAMPLING_ROUNDS} batches sampled for one under dynamic sampling; {rerolled(spec):,} prompts rolled again as "
        "probes, every cohort full (probe.prompts); 2 operations a weight and token to sample, "
        f"{2 * TRAINING_PASSES} to train; {PEAK / 1e12:.0f} TFLOP/s a GPU (H100) used to "
        f"{SAMPLING_UTILISATION:.0%} while sampling and {TRAINING_UTILISATION:.0%} while training"
    )


def of(spec: RunSpec) -> Cost:
    """The cost of all global steps, rerolls and evaluations of `spec`."""
    train = spec.train
    prompt, response = spec.task.expected_tokens(train.max_response)
    batch = train.steps * train.prompts * train.rollouts
    rounds = SAMPLING_ROUNDS if spec.method.dynamic_sampling else 1
    evaluated = len(eval_steps(spec)) * eval_problems(spec) * spec.eval.samples
    probed = rerolled(spec) * train.rollouts
    sampled, trained = (batch * rounds + evaluated + probed) * response, batch * (prompt + response)
    operations = _operations(spec, context=prompt + response / 2)
    seconds = sampled * operations / SAMPLING_UTILISATION
    seconds += trained * operations * TRAINING_PASSES / TRAINING_UTILISATION
    return Cost(seconds / PEAK, sampled, trained, BYTES_SAVED * parameters(spec))


def rerolled(spec: RunSpec) -> int:
    """Prompts that a run rolls again, a group of rollouts each, if every cohort has as many as it may."""
    probe, steps = spec.probe, spec.train.steps
    cohorts = sum(max(0, steps - lag) // probe.every for lag in probe.lags) if probe.every else 0
    panels = math.ceil(steps / probe.panel_every) if probe.panel_every else 0
    return cohorts * min(probe.prompts, spec.train.prompts) + panels * probe.panel


def parameters(spec: RunSpec) -> int:
    """Weights of layers and embeddings; norms are next to nothing."""
    model = spec.model
    heads = 2 * (model.heads + kv_heads(model))
    layers = model.layers * (heads * model.hidden * model.head_dim + 3 * model.hidden * model.mlp)
    embedding = model.hidden * vocabulary(spec)
    return layers + embedding * (1 if model.tied else 2)


def kv_heads(model: Model) -> int:
    """Heads of keys and values."""
    return model.kv_heads or model.heads


def vocabulary(spec: RunSpec) -> int:
    """Rows of the embedding."""
    return spec.model.vocabulary or len(spec.task.vocabulary)


def gpu_bytes(spec: RunSpec) -> dict[str, float]:
    """The least memory that one GPU needs while it `trains` and while it `samples`.

    Training: its share of the weights in training, and of one micro-batch the logits in bfloat16 with their
    gradient and the input of each layer. Sampling: its share of the weights and of the cache of one sequence;
    the rollout engine has `cluster.gpu_memory` of the GPU for them.
    """
    model, cluster, train = spec.model, spec.cluster, spec.train
    shared = BYTES_TRAINED * parameters(spec) / (cluster.nodes * cluster.gpus)
    logits = 2 * BYTES_SAMPLED * cluster.max_tokens_per_gpu * vocabulary(spec)
    inputs = BYTES_SAMPLED * cluster.max_tokens_per_gpu * model.layers * model.hidden
    cache = 2 * BYTES_SAMPLED * model.layers * kv_heads(model) * model.head_dim
    sampling = BYTES_SAMPLED * parameters(spec) + cache * (train.max_prompt + train.max_response)
    return {"trains": shared + logits + inputs, "samples": sampling / cluster.tensor_parallel / cluster.gpu_memory}


def _operations(spec: RunSpec, context: float) -> float:
    """Floating-point operations of one token's forward pass; the embedding is a look-up."""
    model = spec.model
    embedding = 0 if model.tied else model.hidden * vocabulary(spec)
    return 2 * (parameters(spec) - embedding) + 4 * model.layers * model.heads * model.head_dim * context
