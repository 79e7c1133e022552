"""Part C: memory and utilisation of training Qwen3-8B at `scale=paper`, whose passes have 24,576 tokens.

One GPU does not hold 8B with its optimizer (16 bytes per weight). So two models with a few of its 36 layers are
measured: their difference gives the part of a layer, and so that of all layers. Two passes of a gradient step are
measured, because a run has many: in the second one, gradients already exist.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch

from mcpo_cli.config import cost
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.machine import GIB
from tests.gpu import engines
from tests.gpu.engines import Shape
from tests.gpu.notes import Notes

# Prompts as long as the task expects them; eight sequences fill two passes.
SHAPES = {"cuda": Shape(P=2, G=4, S=200, T=5944, limit=24576), "cpu": Shape(P=2, G=4, S=5, T=15, limit=80)}
FEW, MORE = 2, 6
"""Layers of the two models that are measured."""
GPUS = 8
"""GPUs of a node at `scale=paper`."""


@dataclass(frozen=True)
class Taken:
    """Cost of training: seconds of the passes for old log-probabilities and for the update; GiB at the peak."""

    log_probs: float
    update: float
    peak: float

    def with_layers(self, more: "Taken", layers: int) -> "Taken":
        """The cost of a model with that many layers; `self` has FEW, `more` has MORE."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(more), strict=True)
        return Taken(*(a + (b - a) * (layers - FEW) / (MORE - FEW) for a, b in pairs))


def measure(notes: Notes, device: str, folder: Path) -> None:
    """Measure both models, and extrapolate to all layers."""
    whole = settings(device, engines.settings("cuda", "paper", "qwen3-8b").model.layers)
    with engines.one_rank(whole, folder):
        few, more = (taken(settings(device, layers), device, folder / f"{layers}") for layers in (FEW, MORE))
    found, tokens = few.with_layers(more, whole.model.layers), SHAPES[device].limit * 2
    how = f"{tokens:,} tokens, {whole.model.layers} layers, from {FEW} and {MORE}"
    notes.figure("old log-probabilities", found.log_probs, "s", how)
    notes.figure("forward and backward passes", found.update, "s", how)
    if device == "cpu":
        for name in ("peak memory", "utilisation"):
            notes.left_out(name, "a processor has neither memory of its own nor a known peak in bfloat16")
        return
    memory(notes, whole, found, how)
    utilisation(notes, whole, found, tokens, how)


def settings(device: str, layers: int) -> RunSpec:
    """`scale=paper` on one GPU, with that many layers and without offloading, whose transfers would be timed."""
    one = ("cluster.gpus=1", "cluster.tensor_parallel=1", "cluster.offload=false")
    spec = engines.settings(device, "paper", "qwen3-8b", *one)
    return dataclasses.replace(spec, model=dataclasses.replace(spec.model, layers=layers))


def taken(spec: RunSpec, device: str, model: Path) -> Taken:
    """The cost of a random model in its second gradient step, when the optimizer has its moments."""
    from tests.verl import fsdp, queued

    engines.released(device)
    shape, before = SHAPES[device], engines.allocated(device)
    engines.random_model(spec.model, device, model)
    rollouts = engines.random_rollouts(shape, spec.model.vocabulary)
    rollouts = dataclasses.replace(rollouts, length_PG=torch.full_like(rollouts.length_PG, shape.T))
    batch = queued.graded(rollouts, spec.method, engines.accuracies(shape), shape.T)
    row = queued.sequences(rollouts) | queued.through_the_queue(batch, spec.method, shape.T)
    built = fsdp.engine(spec, model, *engines.as_on_gpus(device))
    split, everything = engines.packing(shape.limit), [*range(shape.P * shape.G)]

    def update() -> None:
        fsdp.backward(built, fsdp.rows(row, everything), spec.method, split, len(everything))

    def log_probs() -> None:
        fsdp.log_probs(built, row, split, everything)

    log_probs()
    with built.train_mode():
        update()
        built.optimizer_step()
    alone = engines.seconds(log_probs, device)
    with built.train_mode():
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        passes = engines.seconds(update, device)
        peak = torch.cuda.max_memory_allocated() / GIB - before if device == "cuda" else 0.0
    return Taken(alone, passes, peak)


def memory(notes: Notes, whole: RunSpec, found: Taken, how: str) -> None:
    """Report the memory of one rank, and of each of a node's GPUs."""
    state = cost.BYTES_TRAINED * cost.weights(whole).count / GIB
    meaning = f"one rank with weights, gradients and moments ({state:.3g} GiB) in the middle of a gradient step; {how}"
    notes.figure("peak memory, one rank", found.peak, "GiB", meaning)
    meaning = "the rest: logits, activations, and weights that are gathered"
    notes.figure("peak memory of a pass", found.peak - state, "GiB", meaning)
    each = dataclasses.replace(whole, cluster=dataclasses.replace(whole.cluster, gpus=GPUS))
    estimated = cost.gpu_bytes(each)["trains"] / GIB
    guess = f"a pass, and the share of each of {GPUS} GPUs; cost.gpu_bytes says {estimated:.3g}"
    notes.figure(f"peak memory, {GPUS} GPUs", found.peak - state + state / GPUS, "GiB", guess)


def utilisation(notes: Notes, whole: RunSpec, found: Taken, tokens: int, how: str) -> None:
    """Utilisation as in `cost.TRAINING_UTILISATION`: five forward passes per token, over the peak in bfloat16."""
    from verl.utils.flops_counter import get_device_flops

    name, peak = torch.cuda.get_device_name(), get_device_flops("T") * 1e12
    if peak == float("inf"):
        notes.left_out("utilisation", f"verl knows no peak of {name}")
        return
    # Responses are assumed to have a quarter of the largest number of tokens.
    train = dataclasses.replace(whole.train, max_response=4 * SHAPES["cuda"].T)
    needed = cost.operations(dataclasses.replace(whole, train=train), 0, tokens)
    assumed = f"config/cost.py assumes {cost.TRAINING_UTILISATION:g}"
    meaning = f"of the {peak / 1e12:.0f} TFLOP/s of {name}; {assumed}; {how}"
    notes.figure("utilisation", needed / (found.log_probs + found.update) / peak, "", meaning)
