"""Part G: the local engine with an existing model: rates, memory, equality with the CPU, and a resumed run.

The model is SmolLM2-135M if its files are on this machine (`mcpo components fetch model NAME`), else a random one of
the shape of Qwen3-0.6B. The hinge is active above `method.delta` = 0.01, so it takes larger differences between
log-probabilities of the same policy for drift.
"""

import copy
import dataclasses
import signal
import statistics
from pathlib import Path

import torch
from torch import Tensor

from mcpo_cli import pretrained
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.initial_policy import initial_policy
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.precision import product_precision
from mcpo_cli.backends.local.train import Trainer
from mcpo_cli.backends.local.update import GradedBatch, Updater, log_probs
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.machine import GIB
from mcpo_cli.methods import reduce
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from tests import engine
from tests.gpu import engines
from tests.gpu.notes import Notes
from tests.gpu.parts.drift import LOGITS_STD
from tests.gpu.parts.engine import BFLOAT16_GRADIENT, NOISE
from tests.gpu.parts.local import step
from tests.models import existing, words

PRESENT, SHAPE = "smollm2-135m", "qwen3-0.6b"
QUIET = ("probe.every=0", "probe.panel_every=0", "train.reward=random", "method=mcpo", "train.lr=1e-5")
"""Rewards are random, so that most groups have a gradient whatever the model answers."""
SIZES = {
    "cuda": ("train.max_response=256", "train.max_prompt=128", "compute.micro_batch_tokens=8192"),
    "cpu": ("train.max_response=8", "train.max_prompt=128", "train.prompts=4", "train.mini_batch=2"),
}
STEPS = {"cuda": 3, "cpu": 1}
"""Global steps that are measured, after a first one."""
COMPARED = 2
"""Groups whose log-probabilities and gradient are also computed on the CPU: seconds of a few cores."""
LOGP, GRADIENT = 1e-4, 1e-3
"""Largest relative differences between two devices in float32, which add in different orders; a wrong sign gives 1."""
RESUMED = ("scale=laptop", "train.steps=3", "train.prompts=4", "train.mini_batch=2", "train.rollouts=4")
SHORT = ("train.max_prompt=128", "train.max_response=8", "eval.problems=2", "eval.samples=2", "eval.every=3")


def measure(notes: Notes, device: str, folder: Path) -> None:
    """Measure one model on one device, then a run of a tiny model that is killed."""
    spec = settings(device, folder / "model")
    attempt = Attempt(folder / "run", spec, 0)
    policy, tokenizer = initial_policy(spec, attempt, lambda: False)
    trainer = Trainer(spec, attempt, policy, tokenizer)
    with product_precision(policy):
        rates(notes, trainer, device)
        trainer.step += 1
        batch, _ = trainer.batch(trainer.collect())
    packings(notes, trainer, batch, "at rest")
    against_the_cpu(notes, trainer, batch, device)
    with product_precision(policy):
        trainer.updater.mini_batch(batch, trainer.step, 0)
    packings(notes, trainer, batch, "after an optimizer step")
    resumed(notes, device, folder)


def settings(device: str, folder: Path) -> RunSpec:
    """SmolLM2-135M, or a random model that is written to `folder`.

    Its output layer is not tied to the embedding, because with large logits each token would predict itself.
    """
    own = ["scale=laptop", *SIZES[device], *QUIET, f"compute.device={device}", "compute.threads=1"]
    (spec,) = load([*own, f"model={PRESENT}"])
    if device == "cuda" and pretrained.find(spec.model):
        return spec
    small = [f"model.{size}" for size in engines.SMALL] if device == "cpu" else []
    (shape,) = load(["scale=one-gpu", f"model={SHAPE}", *small, "model.tied=false"])
    engines.random_model(shape.model, device, folder, logits_std=LOGITS_STD)
    words().save_pretrained(folder)
    (spec,) = load([*own, f"model.path={folder}", "compute.dtype=bfloat16"])
    return spec


def rates(notes: Notes, trainer: Trainer, device: str) -> None:
    """Tokens per second of sampling and of updates, seconds per step, and memory."""
    step(trainer)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    rows, trained = [], []
    for _ in range(STEPS[device]):
        rows.append(step(trainer))
        trained.append(trainer.updater.trained_tokens)
    train, size = trainer.spec.train, sum(weights.numel() for weights in trainer.policy.parameters())
    told = f"{trainer.spec.model.name}, {size:,} weights, {train.prompts} x {train.rollouts} rollouts, median"
    sampling = [row["perf/tokens_per_second"] * row["perf/seconds"] / row["perf/seconds_sample"] for row in rows]
    notes.figure("sampling", statistics.median(sampling), "tokens/s", told)
    updates = [count / row["perf/seconds_update"] for count, row in zip(trained, rows, strict=True)]
    notes.figure("updates", statistics.median(updates), "tokens/s", f"of sequences with a gradient; {told}")
    notes.figure("a global step", statistics.median(row["perf/seconds"] for row in rows), "s", told)
    norm = min(row["train/grad_norm"] for row in rows)
    notes.figure("gradient norm", norm, "", "the smallest of all steps", at_least=1e-9)
    if device == "cpu":
        notes.left_out("peak memory", "a CPU has no memory of its own")
    else:
        notes.figure("peak memory", torch.cuda.max_memory_allocated() / GIB, "GiB", f"of all tensors; {told}")


def packings(notes: Notes, trainer: Trainer, batch: GradedBatch, when: str) -> None:
    """Log-probabilities of one policy in bfloat16 against float32, and with other groups in the same pass."""
    policy, rollouts = trainer.policy, batch.rollouts
    together, apart = packed(policy, rollouts)
    float32, float32_apart = packed(Policy(policy.model, policy.device), rollouts)
    pairs = {"bfloat16 against float32": (together, float32), "bfloat16, another packing": (together, apart)}
    if when == "at rest":
        pairs["bfloat16, sampler against update"] = together, rollouts.logp_PGT
    for name, (found, wanted) in pairs.items():
        drift_N = (found - wanted)[rollouts.mask_PGT].abs()
        told = f"of {len(drift_N):,} response tokens {when}"
        delta = trainer.spec.method.delta
        share = float((drift_N > delta).double().mean())
        notes.figure(f"{name}, {when}: share", share, "", f"share above {delta:g} {told}")
        notes.figure(f"{name}, {when}: mean", float(drift_N.mean()), "nats", f"mean {told}")
        notes.figure(f"{name}, {when}: largest", float(drift_N.max()), "nats", f"largest {told}")
    drift = float((float32 - float32_apart)[rollouts.mask_PGT].abs().max())
    meaning = "largest; compute.dtype=float32 keeps rounding below method.delta"
    notes.figure(f"float32, another packing, {when}", drift, "nats", meaning, at_most=trainer.spec.method.delta)


@torch.no_grad()
def packed(policy: Policy, rollouts: Rollouts) -> tuple[Tensor, Tensor]:
    """Log-probabilities of all groups in one pass, and of each group in its own."""
    single = torch.arange(len(rollouts.length_PG), device=policy.device).split(1)
    # A float32 policy needs all bits: under the TF32 of a bfloat16 policy its log-probabilities differ by .03 (H200).
    with product_precision(policy):
        return log_probs(policy, rollouts), torch.cat([log_probs(policy, rollouts.select(index)) for index in single])


def against_the_cpu(notes: Notes, trainer: Trainer, batch: GradedBatch, device: str) -> None:
    """Log-probabilities and gradient of a few groups in float32 on both devices, and the gradient in bfloat16."""
    policy, index = trainer.policy, (batch.signals.advantage_PG != 0).any(-1).nonzero().squeeze(-1)[:COMPARED]
    few = batch.select(index)
    on_cpu = Policy(copy.deepcopy(policy.model), torch.device("cpu"))
    exact = Policy(policy.model, policy.device)
    with torch.no_grad():
        logp_PGT = log_probs(exact, few.rollouts)
    noise_PGT = NOISE * torch.randn(logp_PGT.shape, generator=torch.Generator().manual_seed(3)).to(logp_PGT.device)
    # The policy has moved a little: ratios are clipped and the hinge has a gradient.
    old_PGT = (logp_PGT + noise_PGT) * few.rollouts.mask_PGT
    few = dataclasses.replace(few, rollouts=dataclasses.replace(few.rollouts, logp_PGT=old_PGT))
    wanted_logp, wanted = passes(trainer.spec, on_cpu, moved(few, torch.device("cpu")))
    found_logp, found = passes(trainer.spec, exact, few)
    where = f"{len(index)} groups in float32, {device} against the CPU"
    off = float((found_logp - wanted_logp).norm() / wanted_logp.norm())
    notes.figure("log-probabilities, float32", off, "relative difference", where, at_most=LOGP)
    notes.figure("gradient, float32", engines.difference(found, wanted), "relative difference", where, at_most=GRADIENT)
    with product_precision(policy):
        _, found = passes(trainer.spec, policy, few)
    meaning = f"{len(index)} groups in bfloat16 on {device} against float32 on the CPU; a wrong loss has 1"
    off = engines.difference(found, wanted)
    notes.figure("gradient, bfloat16", off, "relative difference", meaning, at_most=BFLOAT16_GRADIENT)


def moved(batch: GradedBatch, device: torch.device) -> GradedBatch:
    """The batch on another device."""
    rollouts = type(batch.rollouts)(**{name: value.to(device) for name, value in vars(batch.rollouts).items()})
    signals = batch.signals.map(lambda tensor: tensor.to(device))
    index_P, used_PG = batch.index_P.to(device), batch.used_PG.to(device)
    return GradedBatch(rollouts, batch.correct_PG.to(device), signals, index_P, used_PG)


def passes(spec: RunSpec, policy: Policy, batch: GradedBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probabilities of a batch and the gradient of its loss, by the engine's own update; on the CPU."""
    updater = Updater(policy, spec.method, spec.train, spec.compute, spec.seed)
    tokens = updater.tokens(batch, batch.total(spec.train.max_response))
    loss = reduce(spec.method.token_loss(tokens), tokens.mask_BT)
    found = torch.autograd.grad(loss, policy.parameters())
    named = {name: value.cpu() for name, value in zip(policy.named_parameters(), found, strict=True)}
    return tokens.logp_BT.detach().cpu(), named


def resumed(notes: Notes, device: str, folder: Path) -> None:
    """A run of a tiny model in a process that is killed in its second step, and another process that continues it."""
    more = f"model.path={existing(folder / 'tiny', 'qwen3')}", f"compute.device={device}", "compute.checkpoint_every=1"
    (spec,) = load([*RESUMED, *SHORT, *QUIET, *more, "compute.dtype=bfloat16"])
    codes = [engine.work(folder, spec, "sampling", 3), engine.work(folder, spec)]
    meaning = "exit code of a process that ends itself while it samples, -9"
    notes.figure("killed", codes[0], "", meaning, at_least=-signal.SIGKILL, at_most=-signal.SIGKILL)
    notes.figure("resumed", codes[1], "", "exit code of the process that goes on", at_least=0, at_most=0)
    journal, steps = Journal(folder / "runs" / spec.run_id), spec.train.steps
    rows = journal.steps()
    notes.figure("steps of both", len(rows), "", "global steps in the journal", at_least=steps, at_most=steps)
    start = journal.attempts()[-1]
    notes.figure("attempts", int(start.name.removeprefix("attempt_")), "", "one of them killed", at_least=2, at_most=2)
