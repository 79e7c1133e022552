"""Part A: loss and gradient of verl's FSDP engine against the local backend; offload; save and resume."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.update import GradedBatch, Updater, log_probs
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.machine import GIB
from mcpo_cli.methods import reduce
from tests.gpu import engines
from tests.gpu.engines import Shape
from tests.gpu.notes import Notes

SHAPES = {"cuda": Shape(P=8, G=4, S=64, T=128, limit=2048), "cpu": Shape(P=4, G=4, S=5, T=12, limit=80)}
NOISE = 0.02
"""Standard deviation of the noise in old log-probabilities: so tokens are clipped, and the hinge is active."""
BFLOAT16_GRADIENT = 0.2
"""Largest relative difference in bfloat16: a CPU has 0.04 with 2 layers and 0.06 with 28; a wrong loss has 1."""
Gradient = dict[str, Tensor]


def measure(notes: Notes, device: str, folder: Path) -> None:
    """Measure all figures, with one model and one batch."""
    spec, shape = engines.settings(device, "one-gpu", "qwen3-0.6b"), SHAPES[device]
    engines.random_model(spec.model, device, folder / "model")
    batch, value, gradient = local(spec, shape, device, folder / "model")
    with engines.one_rank(spec, folder):
        from tests.verl import queued

        row = queued.sequences(batch.rollouts) | queued.through_the_queue(batch, spec.method, shape.T)
        both = Both(spec, row, engines.packing(shape.limit), value, gradient)
        exact(notes, both, folder / "model")
        engines.released(device)
        as_users_have_it(notes, both, device, folder)
        engines.released(device)
        offloaded(notes, both, device, folder / "model")


def local(spec: RunSpec, shape: Shape, device: str, folder: Path) -> tuple[GradedBatch, float, Gradient]:
    """A batch, and its loss and gradient by the local backend in float32."""
    from tests.verl import queued

    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    policy = Policy(model, torch.device(device))
    random = engines.random_rollouts(shape, spec.model.vocabulary)
    rollouts = Rollouts(**{name: value.to(device) for name, value in vars(random).items()})
    with torch.no_grad():
        logp_PGT = log_probs(policy, rollouts)
    noise_PGT = NOISE * torch.randn(logp_PGT.shape, generator=torch.Generator().manual_seed(3)).to(device)
    rollouts = dataclasses.replace(rollouts, logp_PGT=(logp_PGT + noise_PGT) * rollouts.mask_PGT)
    batch = queued.graded(rollouts, spec.method, engines.accuracies(shape), shape.T)
    updater = Updater(policy, spec.method, spec.train, spec.compute, spec.seed)
    tokens = updater.tokens(batch, batch.total(shape.T))
    loss = reduce(spec.method.token_loss(tokens), tokens.mask_BT)
    loss.backward()
    found = {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    return batch, float(loss.detach()), {name: value.cpu() for name, value in found.items()}


@dataclasses.dataclass(frozen=True)
class Both:
    """The batch in verl's form, and the local backend's results for it."""

    spec: RunSpec
    row: dict[str, Any]
    split: dict[str, Any]
    value: float
    gradient: Gradient

    def by_verl(self, built: Any) -> tuple[float, Gradient]:
        """Loss and gradient by an engine of verl."""
        from tests.verl import fsdp

        with built.train_mode():
            loss = self._backward(built)
            return loss, {name: value.cpu() for name, value in fsdp.gradients(built).items()}

    def step(self, built: Any) -> float:
        """An optimizer step; returns the loss before it."""
        with built.train_mode():
            loss = self._backward(built)
            built.optimizer_step()
        return loss

    def _backward(self, built: Any) -> float:
        from tests.verl import fsdp

        everything = [*range(len(self.row["responses"]))]
        data = fsdp.rows(self.row, everything)
        output = fsdp.backward(built, data, self.spec.method, self.split, len(everything))
        return float(sum(output["loss"]))


def exact(notes: Notes, both: Both, model: Path) -> None:
    """Check that both backends compute the same in float32."""
    from tests.verl import fsdp

    # Flash attention has no float32.
    cluster = dataclasses.replace(both.spec.cluster, attention="sdpa")
    built = fsdp.engine(dataclasses.replace(both.spec, cluster=cluster), model, engines.FLOAT32)
    value, gradient = both.by_verl(built)
    meaning = "verl's engine with every number in float32, attention sdpa; against the local backend"
    notes.figure("loss, float32", abs(value - both.value), "absolute difference", meaning, at_most=1e-5)
    off = engines.difference(gradient, both.gradient)
    notes.figure("gradient, float32", off, "relative difference", meaning, at_most=1e-4)


def as_users_have_it(notes: Notes, both: Both, device: str, folder: Path) -> None:
    """Measure in bfloat16 as in runs; take an optimizer step, and check that another engine continues a checkpoint."""
    from tests.verl import fsdp

    built = fsdp.engine(both.spec, folder / "model", *engines.as_on_gpus(device))
    value, gradient = both.by_verl(built)
    meaning = f"the settings of scale=one-gpu: bfloat16, attention {both.spec.cluster.attention}; against float32"
    notes.figure("loss, bfloat16", abs(value - both.value), "absolute difference", meaning, at_most=1e-2)
    off = engines.difference(gradient, both.gradient)
    notes.figure("gradient, bfloat16", off, "relative difference", meaning, at_most=BFLOAT16_GRADIENT)
    before = weights(built)
    both.step(built)
    moved = float(max((value - before[name]).abs().max() for name, value in weights(built).items()))
    meaning = "largest change of a weight by one optimizer step, so that there is something to save"
    notes.figure("weights moved", moved, "", meaning, at_least=1e-9)
    saving = engines.seconds(lambda: built.save_checkpoint(str(folder / "saved"), global_step=1), device)
    written = sum(file.stat().st_size for file in (folder / "saved").rglob("*") if file.is_file())
    notes.figure("checkpoint written", saving, "s", f"{written / GIB:.3g} GiB: weights, both moments, random numbers")
    resumed(notes, both, built, device, folder)


def resumed(notes: Notes, both: Both, built: Any, device: str, folder: Path) -> None:
    """Check that another engine that reads the checkpoint has the state of the one that wrote it."""
    from tests.verl import fsdp

    other = fsdp.engine(both.spec, folder / "model", *engines.as_on_gpus(device))
    path = str(folder / "saved")
    reading = engines.seconds(lambda: other.load_checkpoint(path, del_local_after_load=False), device)
    notes.figure("checkpoint read", reading, "s", "by another engine")
    pairs = [(weights(built), weights(other)), (moments(built), moments(other))]
    off = max(float((mine[name] - theirs[name]).abs().max()) for mine, theirs in pairs for name in mine)
    notes.figure("state after resuming", off, "", "largest difference of a weight or a moment", at_most=0)
    steps = both.step(built), both.step(other)
    meaning = "the next step's loss, of the engine that went on and of the one that resumed"
    notes.figure("loss after resuming", abs(steps[0] - steps[1]), "absolute difference", meaning, at_most=1e-6)


def offloaded(notes: Notes, both: Both, device: str, model: Path) -> None:
    """Check that `cluster.offload=true` changes no result and empties the GPU between passes."""
    from tests.verl import fsdp

    cluster = dataclasses.replace(both.spec.cluster, offload=True)
    before = engines.allocated(device)
    built = fsdp.engine(dataclasses.replace(both.spec, cluster=cluster), model, *engines.as_on_gpus(device))
    _, gradient = both.by_verl(built)
    both.step(built)
    off = engines.difference(gradient, both.gradient)
    notes.figure(
        "gradient, offloaded",
        off,
        "relative difference",
        "with cluster.offload=true, bfloat16",
        at_most=BFLOAT16_GRADIENT,
    )
    if device == "cpu":
        notes.left_out("memory while offloaded", "a processor has no memory of its own to move things out of")
        return
    meaning = "what weights, gradients and moments leave on the GPU between passes"
    notes.figure("memory while offloaded", engines.allocated(device) - before, "GiB", meaning, at_most=0.5)


def weights(built: Any) -> Gradient:
    """The engine's weights, whole, in main memory."""
    return {name: value.full_tensor().detach().to("cpu", copy=True) for name, value in built.module.named_parameters()}


def moments(built: Any) -> Gradient:
    """The optimizer's moments, whole, in main memory."""
    return {
        f"{index}.{name}": value.full_tensor().to("cpu", copy=True)
        for index, entry in enumerate(built.optimizer.state.values())
        for name, value in entry.items()
        if name.startswith("exp_avg")
    }
