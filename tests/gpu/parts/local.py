"""Part F: global steps of the local engine: tokens per second, and the share of time in which the GPU computes.

The policies and the rewards are random, so that every group has a gradient.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType

from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.train import Trainer
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from tests.gpu.notes import Notes

LARGE = ("hidden=640", "layers=10", "heads=10", "head_dim=64", "mlp=1728", "name=50m")
SMALLEST = {"toy-s": ("model=toy-s",)}
MODELS = {
    "cuda": {
        **SMALLEST,
        "toy-m": ("model=toy-m",),
        "50M": ("model=toy-m", *(f"model.{size}" for size in LARGE)),
    },
    "cpu": SMALLEST,
}
NO_PROBES = ("probe.every=0", "probe.panel_every=0", "probe.gradients_every=0")
COINS = ("train.reward=random", "train.overlong_cache=0", "model.init_std=0.02")
"""Embeddings start small: with the toy models' own deviation an untrained policy is certain of its next token."""
SHAPES = {
    "cuda": ("regime=paper-shaped",),
    "cpu": ("scale=smoke", "train.prompts=4", "train.mini_batch=2", "train.rollouts=2"),
}
STEPS = {"cuda": 5, "cpu": 1}
"""Global steps that are measured, after a first one."""


def measure(notes: Notes, device: str, folder: Path) -> None:
    """Measure each model."""
    for name, model in MODELS[device].items():
        (spec,) = load([*SHAPES[device], *model, *NO_PROBES, *COINS, f"compute.device={device}", "method=mcpo"])
        trainer = new(spec, folder / name)
        rows = [step(trainer) for _ in range(1 + STEPS[device])][1:]
        size = sum(weights.numel() for weights in trainer.policy.parameters())
        rate = statistics.median(row["perf/tokens_per_second"] for row in rows)
        told = f"of a model with {size:,} weights, {spec.train.prompts} x {spec.train.rollouts} rollouts a global step"
        notes.figure(f"{name}: tokens a second", rate, "1/s", f"sampled tokens over the whole step, median; {told}")
        norm = min(row["train/grad_norm"] for row in rows)
        notes.figure(f"{name}: gradient norm", norm, "", "the smallest of all steps", at_least=1e-9)
        share = statistics.median(row["perf/seconds_update"] / row["perf/seconds"] for row in rows)
        notes.figure(f"{name}: share of the update", share, "", "of a step's seconds; most of the rest is sampling")
        if device == "cpu":
            notes.left_out(f"{name}: share of launches", "a processor launches no kernels")
            continue
        meaning = "share of a step in which the GPU computes nothing, because kernels are launched more slowly"
        notes.figure(f"{name}: share of launches", idle(trainer, rows), "", meaning)


def new(spec: RunSpec, folder: Path) -> Trainer:
    """A trainer of a random policy, with its journal in `folder`."""
    tokenizer = tokenizers.build(spec.task.vocabulary)
    model = policies.build(spec.model, tokenizer, spec.seed)
    return Trainer(spec, Attempt(folder, spec, 0), Policy(model, policies.device(spec.compute.device)), tokenizer)


def step(trainer: Trainer) -> dict[str, Any]:
    """The metrics of the next global step."""
    trainer.step += 1
    trainer.global_step()
    return dict(Journal(trainer.attempt.folder.parent).steps()[-1]["metrics"])


def idle(trainer: Trainer, rows: Sequence[dict[str, Any]]) -> float:
    """1 minus the time of all kernels of one step over the wall time of the steps `rows`, which were not profiled."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profiled:
        step(trainer)
        torch.cuda.synchronize()
    # Operations on the CPU also include the time of their kernels, and annotations that of all kernels inside.
    found = [event for event in profiled.key_averages() if event.device_type == DeviceType.CUDA]
    kernels = sum(event.self_device_time_total for event in found if not event.is_user_annotation) / 1e6
    return 1 - kernels / statistics.median(row["perf/seconds"] for row in rows)
