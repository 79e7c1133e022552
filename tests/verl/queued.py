"""A batch of rollouts in the forms of both backends: graded for the local one, and rows of verl's queue (`fsdp.py`)."""

from collections.abc import Sequence
from typing import Any

import torch

from mcpo_cli.backends import masking
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.update import GradedBatch
from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.backends.verl.loss import FACTS
from mcpo_cli.methods import Method, Step


def graded(
    rollouts: Rollouts,
    method: Method,
    right_P: Sequence[int],
    max_response: int,
    ungraded: Sequence[tuple[int, int]] = (),
) -> GradedBatch:
    """The rollouts with made-up verdicts and a shaped reward.

    right_P: number of correct rollouts of each prompt. max_response: the longest response that sampling allows.
    ungraded: prompt and number of each rollout that could not be graded.
    """
    device, G = rollouts.length_PG.device, rollouts.length_PG.shape[1]
    correct_PG = torch.arange(G, device=device) < torch.tensor(right_P, device=device)[:, None]
    reward_PG = correct_PG.double() - rollouts.length_PG.double() / 40
    index_P = torch.arange(len(right_P), device=device)
    tokens = {"logp_PGT": rollouts.logp_PGT, "entropy_PGT": rollouts.entropy_PGT}
    step = Step(reward_PG, correct_PG, rollouts.length_PG, index_P, max_response=max_response, **tokens)
    graded_PG = torch.ones_like(correct_PG)
    for place in ungraded:
        graded_PG[place] = False
    used_PG = masking.used(method, rollouts.drawn_PG, graded_PG)
    signals, _ = masking.signals(method, step, {}, used_PG)
    return GradedBatch(rollouts, correct_PG & graded_PG, signals, index_P, used_PG)


def sequences(rollouts: Rollouts) -> dict[str, list[torch.Tensor]]:
    """The data that verl's rollout engine and its pass before the update put into the queue."""
    G = rollouts.length_PG.shape[1]
    lengths = rollouts.length_PG.flatten().tolist()

    def cut(values_PGT: torch.Tensor) -> list[torch.Tensor]:
        return [value[:length] for value, length in zip(values_PGT.flatten(0, 1).cpu(), lengths, strict=True)]

    prompts = list(rollouts.prompt_PS.cpu().repeat_interleave(G, 0))
    return {"prompts": prompts, "responses": cut(rollouts.token_PGT), "old_log_probs": cut(rollouts.logp_PGT)}


def through_the_queue(batch: GradedBatch, method: Method, max_response: int) -> dict[str, Any]:
    """The data that verl's trainer puts into its queue for the loss, and which sequences have a gradient."""
    from mcpo_cli.backends.verl import queue
    from mcpo_cli.backends.verl.batch import MethodOutput

    (P, G), length_PG = batch.correct_PG.shape, batch.rollouts.length_PG.cpu()
    signals, total = batch.signals.map(torch.Tensor.cpu), batch.total(max_response)
    indices = [(prompt, rollout) for prompt in range(P) for rollout in range(G)]
    output = MethodOutput(signals, length_PG, [total], batch.used_PG.cpu(), signals.has_gradient_PG, MetricSums())
    fields = queue.fields(method, output, indices)
    facts = fields.pop(FACTS)
    named = {name: list(value.unbind()) for name, value in fields.items()}
    return {"facts": facts, "signals": named, "bears": signals.has_gradient_PG.flatten().tolist()}
