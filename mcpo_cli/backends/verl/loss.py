"""The loss that verl's engine calls for each micro-batch, on each rank: that of `mcpo_cli.methods`.

verl averages gradients over ranks, so the loss is multiplied by their number; the weights of `TokenLoss` are global
over the mini-batch already. So gradients do not depend on micro-batches, dynamic batch sizes or ranks.
"""

from typing import Any

import torch
from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.measure import Sums
from mcpo_cli.methods import Method, MiniBatch, TokenBatch, reduce

FACTS = "mcpo_facts"
"""The field with what a sequence has to know of its mini-batch, a row of `facts` each."""
METRIC = "mcpo"
"""What the loss reports: per micro-batch a group of it, the pairs of `Sums`, and the groups that felt the hinge."""


def facts(group: int, mastered: bool, total: MiniBatch) -> list[int]:
    """One row of the field FACTS; group: place of the sequence's prompt in the global step's batch."""
    return [group, int(mastered), total.sequences, total.tokens, total.mastered]


def loss(method: Method, model_output: Any, data: Any, dp_group: Any = None) -> tuple[Tensor, dict[str, Any]]:
    """verl's `loss_fn`; `data` is a TensorDict of the sequences of one micro-batch."""
    tokens, group_B = token_batch(model_output, data)
    token_loss = method.token_loss(tokens)
    with torch.no_grad():
        sums = measure.ratios(tokens, method)
        sums.merge(measure.policy_loss(token_loss, tokens))
        # Over all micro-batches and ranks: once a mini-batch.
        sums.add("train/policy_loss", 0.0, len(group_B) / tokens.total.sequences)
        felt: list[int] = []
        if method.anchors_mastered and tokens.total.mastered:
            measured, felt_B = measure.hinge(token_loss, tokens)
            sums.merge(measured)
            sums.merge(measure.drift(tokens, method.drift_budget))
            sums.add("hinge/tokens_active", 0.0, (tokens.mask_BT & tokens.mastered_B[:, None]).sum())
            sums.add("hinge/penalty", 0.0, tokens.mastered_B.sum() / tokens.total.mastered)
            felt = sorted(set(group_B[felt_B].tolist()))
    value = reduce(token_loss, tokens.mask_BT) * data["dp_size"]
    return value, {METRIC: {"group": int(group_B[0]), "sums": sums.pairs, "felt": felt}}


def token_batch(model_output: Any, data: Any) -> tuple[TokenBatch, Tensor]:
    """The micro-batch as methods see it, padded on the right, and group_B, the prompt of each sequence."""
    from verl.workers.utils.padding import no_padding_2_padding

    logp_BT = no_padding_2_padding(model_output["log_probs"], data)
    padded = data.select("response_mask", "old_log_probs", "advantages").to_padded_tensor()
    mask_BT = padded["response_mask"].bool()
    # The queue gives a field of a row's numbers back as a ragged tensor.
    rows = data[FACTS]
    fact_BF = (rows.values() if rows.is_nested else rows).reshape(len(mask_BT), -1)
    old_BT = padded["old_log_probs"].where(mask_BT, 0.0)
    tokens = TokenBatch(
        logp_BT=logp_BT.where(mask_BT, 0.0),
        logp_old_BT=old_BT,
        logp_anchor_BT=old_BT,
        mask_BT=mask_BT,
        # Every response has a first token, and all of its tokens the same advantage.
        advantage_B=padded["advantages"][:, 0],
        mastered_B=fact_BF[:, 1].bool(),
        total=MiniBatch(*(int(value) for value in fact_BF[0, 2:])),
    )
    return tokens, fact_BF[:, 0]


def merged(reports: list[dict[str, Any]], prompts: int) -> list[tuple[Sums, set[int]]]:
    """The reports of all micro-batches and ranks of a global step, as one a mini-batch of `prompts`, in order."""
    found: dict[int, tuple[Sums, set[int]]] = {}
    for report in reports:
        sums, felt = found.setdefault(report["group"] // prompts, (Sums(), set()))
        for name, (total, count) in report["sums"].items():
            sums.add(name, total, count)
        felt |= set(report["felt"])
    return [found[number] for number in sorted(found)]
