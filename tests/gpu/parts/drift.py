"""Part B: differences between two passes in the log-probabilities of a policy that has not moved.

The hinge begins at `method.delta` = 0.01, so it takes larger differences for drift. The model is random, but its logits
are as large as a trained one's (up to about 25, where bfloat16 has steps of 0.125), and the responses are drawn from
it.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.config.schema import RunSpec
from tests.gpu import engines
from tests.gpu.engines import Shape
from tests.gpu.notes import Notes

SHAPES = {"cuda": Shape(P=16, G=8, S=64, T=512, limit=16384), "cpu": Shape(P=8, G=4, S=5, T=40, limit=2000)}
FUSED = "fused Triton kernels"
LOGITS_STD = 5.5
"""Of 151,936 numbers of this deviation the largest are about 25; entropies are about 1 nat."""


def measure(notes: Notes, device: str, folder: Path) -> None:
    """Measure with users' settings, with verl's fused kernels, and in float32, where rounding is far below delta."""
    spec, shape = engines.settings(device, "one-gpu", "qwen3-0.6b"), SHAPES[device]
    engines.random_model(spec.model, device, folder / "model", logits_std=LOGITS_STD)
    rollouts = drawn(folder / "model", shape, spec.model.vocabulary, device)
    with engines.one_rank(spec, folder):
        from tests.verl import fsdp, queued

        batch = queued.graded(rollouts, spec.method, engines.accuracies(shape), shape.T)
        row = queued.sequences(rollouts) | queued.through_the_queue(batch, spec.method, shape.T)
        for name, (cluster, more) in variants(device).items():
            if name == FUSED and device == "cpu":
                notes.left_out(name, "Triton needs a GPU")
                continue
            changed = dataclasses.replace(spec, cluster=dataclasses.replace(spec.cluster, **cluster))
            engines.released(device)
            built = fsdp.engine(changed, folder / "model", *more)
            drifts(notes, name, built, changed, row, SHAPES[device].limit)
            del built


def variants(device: str) -> dict[str, tuple[dict[str, Any], tuple[str, ...]]]:
    """Settings of the cluster and of verl, by name."""
    as_on_gpus = engines.as_on_gpus(device)
    # Flash attention has no float32.
    float32 = {"attention": "sdpa"}, (engines.FLOAT32,)
    # Fused last: verl puts these kernels into the model's class, where later engines of this process find them.
    return {"bfloat16": ({}, as_on_gpus), "float32": float32, FUSED: ({"fused_kernels": True}, as_on_gpus)}


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


def drifts(notes: Notes, name: str, built: Any, spec: RunSpec, row: dict[str, Any], limit: int) -> None:
    """The drift that a gradient step sees, if the pass before packed sequences alike, or half as many together."""
    from tests.verl import fsdp

    everything, delta = [*range(len(row["responses"]))], spec.method.delta
    for packing, before in {"same packing": limit, "another packing": limit // 2}.items():
        old = fsdp.log_probs(built, row, engines.packing(before), everything)
        data = fsdp.rows(row | {"old_log_probs": [*old.unbind()]}, everything)
        drift_N = torch.cat([*seen(built, data, spec, limit)])
        share = float((drift_N > delta).double().mean())
        told = f"of {len(drift_N):,} response tokens under the same weights"
        # mcpo's trainer packs alike, so that the hinge sees no rounding. In float32 that is not necessary.
        at_most = None if packing == "another packing" and name != "float32" else 0.0
        meaning = f"share above {delta:g} {told}; another packing: the pass before had half as many tokens"
        notes.figure(f"{name}, {packing}: share", share, "", meaning, at_most=at_most)
        notes.figure(f"{name}, {packing}: largest", float(drift_N.max()), "nats", f"largest {told}")
        notes.figure(f"{name}, {packing}: mean", float(drift_N.mean()), "nats", f"mean {told}")


def seen(built: Any, data: Any, spec: RunSpec, limit: int) -> Iterator[torch.Tensor]:
    """|d| of the response tokens of each micro-batch, as the loss of a gradient step sees it."""
    from mcpo_cli.backends.verl.loss import facts_of, loss, token_batch
    from tests.verl import fsdp

    found = list[torch.Tensor]()

    def watched(model_output: Any, data: Any, dp_group: Any = None) -> Any:
        tokens = token_batch(spec.method, model_output, data, facts_of(spec.method, data))
        found.append((tokens.logp_BT - tokens.logp_old_BT).detach().abs()[tokens.mask_BT].cpu())
        return loss(spec.method, model_output, data, dp_group)

    with built.train_mode():
        fsdp.backward(built, data, spec.method, engines.packing(limit), len(data), watched)
    yield from found
