"""The loss of `mcpo_cli.methods` in the form that verl's engine calls on each rank for each micro-batch.

Loss terms are weighted over the whole mini-batch. verl averages gradients over ranks, so the loss is multiplied by the
number of ranks. Gradients therefore do not depend on micro-batches, dynamic batch sizes or ranks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mcpo_cli.backends import checks, corrections, measure
from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.config.schema import Train
from mcpo_cli.methods import Method, MiniBatch, Signals, TokenBatch, reduce
from mcpo_cli.records import MiniBatchRow

FACTS = "mcpo_facts"
"""The queue field with the loss's data about each sequence's mini-batch: a row of `facts`."""
KEPT = {"previous_policy": "previous_log_probs", "reference_policy": "reference_log_probs"}
"""Fields of log-probabilities under the other policies that ranks keep, by the method's need."""
CORRECTIONS = (corrections.SAMPLER, corrections.WEIGHT)
"""Token columns of `train.correction` and `train.off_policy_mask`, in the queue where these are asked for."""
NOTHING = Train()
"""Settings without a correction."""
METRIC = "mcpo"
"""The metric in which the loss reports a micro-batch: the index of one of its prompts, the
parts of its `MetricSums` (`pairs` and `prompts`), and the largest drift of a token."""


def column_field(name: str) -> str:
    """The queue field that holds the token column `name`."""
    return f"mcpo_{name}"


class Facts(NamedTuple):
    """What the loss knows of the sequences of a micro-batch besides their tokens."""

    group_B: Tensor
    """The index of each sequence's prompt."""
    used_B: Tensor
    """See `masking.used`."""
    total: MiniBatch
    columns: Mapping[str, Tensor]
    """One value per sequence, by the names of `Method.columns`."""


def facts(method: Method, signals: Signals, index: tuple[int, int], total: MiniBatch, used_PG: Tensor) -> list[float]:
    """The row of FACTS for sequence `index` (prompt, rollout), which `facts_of` reads."""
    totals = (total.sequences, total.tokens, total.prompts, total.max_response)
    values = [float(column[index]) for column in (used_PG, *(signals.columns[name] for name in method.columns))]
    return [float(index[0]), *map(float, totals), *values, *(total.sums[name] for name in method.columns)]


def loss(
    method: Method, model_output: Any, data: Any, dp_group: Any = None, train: Train = NOTHING
) -> tuple[Tensor, dict[str, Any]]:
    """verl's `loss_fn`; `data` is a TensorDict of the sequences of one micro-batch. train: for its corrections."""
    # On a GPU verl calls it under autocast, which would compute a method's products of matrices in bfloat16.
    with torch.autocast(model_output["log_probs"].device.type, enabled=False):
        return _loss(method, model_output, data, train)


def _loss(method: Method, model_output: Any, data: Any, train: Train) -> tuple[Tensor, dict[str, Any]]:
    batch_facts = facts_of(method, data)
    all_tokens, used_B = token_batch(method, model_output, data, batch_facts), batch_facts.used_B
    group = int(all_tokens.group_B[0])
    drift = float(((all_tokens.logp_BT - all_tokens.logp_old_BT).abs() * all_tokens.mask_BT).detach().max())
    if not used_B.any():
        # Ranks must have equally many sequences, so an unused one may fill up a rank.
        return all_tokens.logp_BT.sum() * 0, {METRIC: {"group": group, "sums": {}, "prompts": {}, "drift": drift}}
    tokens = all_tokens if used_B.all() else all_tokens.select(used_B)
    token_loss = corrections.applied(train, checks.token_loss(method, tokens), tokens)
    with torch.no_grad():
        sums = measure.losses(token_loss, tokens.mask_BT)
        sums.merge(measure.reported(method.report(tokens), tokens.group_B))
        if corrections.WEIGHT in tokens.columns:
            sums.merge(corrections.measured(tokens.columns, tokens.logp_old_BT, tokens.mask_BT))
    prompts = {name: [sorted(side) for side in sides] for name, sides in sums.prompts.items()}
    value = reduce(token_loss, tokens.mask_BT) * data["dp_size"]
    return value, {METRIC: {"group": group, "sums": sums.pairs, "prompts": prompts, "drift": drift}}


def kept_policies(method: Method) -> list[str]:
    """The policies of KEPT that `method` needs."""
    return [policy for policy in KEPT if policy in method.needs]


def token_batch(method: Method, model_output: Any, data: Any, batch_facts: Facts) -> TokenBatch:
    """The micro-batch as a right-padded `TokenBatch`. batch_facts: its `facts_of`."""
    from verl.workers.utils.padding import no_padding_2_padding

    logp_BT = no_padding_2_padding(model_output["log_probs"], data)
    with_entropy = "current_entropy" in method.needs
    entropy_BT = no_padding_2_padding(model_output["entropy"], data).detach() if with_entropy else None
    needs = kept_policies(method)
    names = [*method.token_columns, *(name for name in CORRECTIONS if data.get(column_field(name), None) is not None)]
    fields = [column_field(name) for name in names] + [KEPT[policy] for policy in needs]
    table = data.select("response_mask", "old_log_probs", "advantages", *fields).to_padded_tensor()
    mask_BT = table["response_mask"].bool()
    return TokenBatch(
        logp_BT=logp_BT.where(mask_BT, 0.0),
        logp_old_BT=table["old_log_probs"].where(mask_BT, 0.0),
        mask_BT=mask_BT,
        advantage_BT=table["advantages"],
        group_B=batch_facts.group_B,
        total=batch_facts.total,
        columns={**batch_facts.columns, **{name: table[column_field(name)] for name in names}},
        **{f"logp_{policy.removesuffix('_policy')}_BT": table[KEPT[policy]].where(mask_BT, 0.0) for policy in needs},
        entropy_BT=None if entropy_BT is None else entropy_BT.where(mask_BT, 0.0),
    )


def facts_of(method: Method, data: Any) -> Facts:
    """The facts of a micro-batch; the queue may return their rows as a ragged tensor."""
    rows: Tensor = data[FACTS]
    rows_BF = (rows.values() if rows.is_nested else rows).reshape(-1, 6 + 2 * len(method.columns))
    sequences, tokens, prompts, max_response = rows_BF[0, 1:5].long().tolist()
    values_BC, sums_BC = rows_BF[:, 6:].tensor_split(2, dim=-1)
    sums = dict(zip(method.columns, sums_BC[0].tolist(), strict=True))
    columns = dict(zip(method.columns, values_BC.unbind(-1), strict=True))
    total = MiniBatch(sequences, tokens, prompts, max_response, sums)
    return Facts(rows_BF[:, 0].long(), rows_BF[:, 5].bool(), total, columns)


def noise_floor(reports: list[dict[str, Any]], prompts: int) -> float:
    """Largest change of a token's log-probability in the first mini-batch of `prompts`, before any weight moved."""
    return max(float(report["drift"]) for report in reports if report["group"] < prompts)


def merged(reports: list[dict[str, Any]], prompts: int) -> list[MetricSums]:
    """The reports of all micro-batches and ranks of a global step, summed per mini-batch of `prompts`, in order."""
    batches: dict[int, MetricSums] = {}
    for report in reports:
        sums = batches.setdefault(report["group"] // prompts, MetricSums())
        for name, pair in report["sums"].items():
            sums.add(name, *pair)
        for name, sides in report["prompts"].items():
            sums.flag(name, *sides)
    return [batches[number] for number in sorted(batches)]


def gradient_steps(
    step: int, reports: list[dict[str, Any]], norms: Sequence[float], prompts: int, excluded: MetricSums
) -> tuple[list[MiniBatchRow], dict[str, float]]:
    """One row per gradient step of the global step `step`, and the metrics over all of them.

    norms: of the gradients. prompts: of a mini-batch. excluded: the report on sequences outside the first update.

    Raises:
        NotFinite: a loss or a norm is NaN or infinite; verl's engine has left that gradient step out.
    """
    rows, total = list[MiniBatchRow](), MetricSums()
    for number, (metrics, norm) in enumerate(zip(merged(reports, prompts), norms, strict=True), 1):
        if number == 1:
            metrics.merge(excluded)
        metrics.add("train/grad_norm", norm, 1)
        checks.check_mini_batch(step, number, metrics)
        rows.append(measure.mini_batch_row(step, number, metrics))
        total.merge(metrics)
    return rows, total.means()
