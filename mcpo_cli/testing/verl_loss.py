"""The loss under verl against the method's own, on data in the form of verl's queue. Needs verl, but no engine."""

import importlib.util

import torch
from torch import Tensor

from mcpo_cli.methods import Method, Signals, TokenBatch, reduce
from mcpo_cli.testing.batches import step

INSTALLED = all(importlib.util.find_spec(name) for name in ("verl", "tensordict", "transfer_queue"))


def verl_computes_the_same_loss(method: Method, batch: TokenBatch, signals: Signals) -> None:
    """Signals that went through verl's queue give the loss and gradient that `batch` gives directly.

    Args:
        batch: a `mini_batch` of the step of seed 0 with `signals`.
    """
    from tensordict import TensorDict

    from mcpo_cli.backends.measure import MetricSums
    from mcpo_cli.backends.verl import queue
    from mcpo_cli.backends.verl.batch import MethodOutput
    from mcpo_cli.backends.verl.loss import loss

    length_PG = step().length_PG
    P, G = length_PG.shape
    indices = [(prompt, rollout) for prompt in range(P) for rollout in range(G)]
    prepared = {name: column.unflatten(0, (P, G)) for name, column in batch.columns.items()}
    signals = Signals(signals.advantage, signals.has_gradient_PG, signals.counts_PG, {**signals.columns, **prepared})
    output = MethodOutput(signals, length_PG, [batch.total], signals.has_gradient_PG, MetricSums())
    sent = queue.fields(method, output, indices)
    lengths = length_PG.flatten().tolist()

    def ragged(value_BT: Tensor) -> Tensor:
        return _ragged([value_T[:length] for value_T, length in zip(value_BT, lengths, strict=True)])

    data = TensorDict(
        {
            **dict(sent.items()),
            "prompts": _ragged([torch.zeros(1).long()] * len(lengths)),
            "responses": ragged(batch.mask_BT.long()),
            "response_mask": ragged(batch.mask_BT.long()),
            "old_log_probs": ragged(batch.logp_old_BT),
        },
        batch_size=len(lengths),
    ).set_non_tensor("dp_size", 1)
    # verl's model gives a number at each position of a sequence; the last one is not a prediction of a token.
    leaf = batch.logp_BT.detach().requires_grad_()

    def of_model(value_BT: Tensor) -> Tensor:
        rows = zip(value_BT, lengths, strict=True)
        return _ragged([torch.cat([row[:length], row[:1] * 0]) for row, length in rows])

    returned = {"log_probs": of_model(leaf)}
    if batch.entropy_BT is not None:
        returned["entropy"] = of_model(batch.entropy_BT)
    value, _ = loss(method, returned, data)
    (gradient,) = torch.autograd.grad(value, leaf)
    expected = reduce(method.token_loss(batch), batch.mask_BT)
    (expected_gradient,) = torch.autograd.grad(expected, batch.logp_BT)
    # The queue holds advantages in float32.
    torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-6, atol=1e-6, check_dtype=False)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-6, check_dtype=False)


def _ragged(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
