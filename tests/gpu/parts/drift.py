"""Part B: how far log-probabilities of a policy that has not moved differ between two passes.

The hinge begins at `method.delta` = 0.01, so what differs by more is felt as a drift that nobody made. The model is
random, but its logits are as large as a trained one's (up to about 25, where bfloat16 has steps of 0.125), and the
responses are drawn from it.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

from mcpo_cli.backends.local.sampler import Rollouts
from mcpo_cli.config.schema import RunSpec
from tests.gpu import engines
from tests.gpu.engines import Shape
from tests.gpu.notes import Notes

SHAPES = {"cuda": Shape(P=16, G=8, S=64, T=512, limit=16384), "cpu": Shape(P=4, G=4, S=5, T=24, limit=120)}
LOGITS_STD = 5.5
"""Of 151,936 numbers of this deviation the largest are about 25; entropies are about 1 nat."""


def measure(notes: Notes, device: str, folder: Path) -> None:
    """With logits as they are, then with verl's fused Triton kernels."""
    spec, shape = engines.settings(device, "one-gpu", "qwen3-0.6b"), SHAPES[device]
    engines.random_model(spec.model, device, folder / "model", logits_std=LOGITS_STD)
    rollouts = drawn(folder / "model", shape, spec.model.vocabulary, device)
    with engines.one_rank(spec, folder):
        from tests.verl import queued

        batch = queued.graded(rollouts, spec.method, engines.accuracies(shape), shape.T)
        row = queued.sequences(rollouts) | queued.through_the_queue(batch, spec.method, shape.T)
        for kernels in ("logits in bfloat16", "fused Triton kernels"):
            fused = kernels.startswith("fused")
            if fused and device == "cpu":
                notes.left_out(kernels, "Triton needs a GPU")
                continue
            cluster = dataclasses.replace(spec.cluster, fused_kernels=fused)
            drifts(notes, kernels, dataclasses.replace(spec, cluster=cluster), row, device, folder / "model")


def drawn(folder: Path, shape: Shape, vocabulary: int, device: str) -> Rollouts:
    """Random prompts, with responses that the model samples at temperature 1."""
    rollouts = engines.random_rollouts(shape, vocabulary)
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    prompt_BS = rollouts.prompt_PS.repeat_interleave(shape.G, 0).to(device)
    full_BT = model.generate(
        prompt_BS,
        attention_mask=torch.ones_like(prompt_BS),
        do_sample=True,
        top_k=0,
        top_p=1.0,
        min_new_tokens=shape.T,
        max_new_tokens=shape.T,
    )
    return dataclasses.replace(rollouts, token_PGT=full_BT[:, shape.S :].cpu().view(shape.P, shape.G, shape.T))


def drifts(notes: Notes, kernels: str, spec: RunSpec, row: dict[str, Any], device: str, model: Path) -> None:
    """The drift that a gradient step sees, if the pass before packed sequences alike, or half as many together."""
    from tests.verl import fsdp

    built = fsdp.engine(spec, model, *engines.as_on_gpus(device))
    limit, delta = SHAPES[device].limit, spec.method.delta
    everything = [*range(len(row["responses"]))]
    for name, before in {"the same packing": limit, "another packing": limit // 2}.items():
        old = fsdp.log_probs(built, row, engines.packing(before), everything)
        data = fsdp.rows(row | {"old_log_probs": [value.cpu() for value in old.unbind()]}, everything)
        drift_N = torch.cat([*seen(built, data, spec, limit)])
        share = float((drift_N > delta).double().mean())
        told = f"of {len(drift_N):,} response tokens under the same weights; old log-probabilities by {name}"
        notes.figure(
            f"{kernels}, {name}: share above delta", share, "", f"|d| > {delta:g}, {told}", at_most=limit_of(name)
        )
        notes.figure(f"{kernels}, {name}: largest", float(drift_N.max()), "nats", told)
        notes.figure(f"{kernels}, {name}: mean", float(drift_N.mean()), "nats", told)


def limit_of(packing: str) -> float | None:
    """The same packing must give the same numbers: mcpo's trainer relies on it. Another one may not."""
    return 0.0 if packing == "the same packing" else None


def seen(built: Any, data: Any, spec: RunSpec, limit: int) -> Iterator[torch.Tensor]:
    """|d| of the response tokens of each micro-batch, as the loss of a gradient step sees it."""
    from mcpo_cli.backends.verl.loss import loss, token_batch
    from tests.verl import fsdp

    found = list[torch.Tensor]()

    def watched(model_output: Any, data: Any, dp_group: Any = None) -> Any:
        tokens = token_batch(spec.method, model_output, data)
        found.append((tokens.logp_BT - tokens.logp_old_BT).detach().abs()[tokens.mask_BT].cpu())
        return loss(spec.method, model_output, data, dp_group)

    with built.train_mode():
        fsdp.backward(built, data, spec.method, engines.packing(limit), len(data), watched)
    yield from found
