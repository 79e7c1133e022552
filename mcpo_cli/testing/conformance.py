"""The checks of the conformance kit. Each raises AssertionError with its finding."""

import dataclasses
import importlib.util
import itertools
import operator
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mcpo_cli.config.schema import Train
from mcpo_cli.methods import Method, Signals, State, Step, TokenBatch, reduce
from mcpo_cli.testing.batches import mini_batch, step
from mcpo_cli.testing.outcomes import CheckOutcome, named, outcomes

TOLERANCE = 1e-9
"""Tolerance of sums in float64, relative to the largest value."""
SEEDS = range(3)
VERL_INSTALLED = all(importlib.util.find_spec(name) for name in ("verl", "tensordict", "transfer_queue"))


def check(method: Method) -> list[CheckOutcome]:
    """Every check on `method`, in order; a failed check does not stop the others."""
    return outcomes(CHECKS, method)


def label(method: Method) -> None:
    """The label can name a folder, and names the method."""
    assert re.fullmatch(r"[A-Za-z0-9._-]+", method.label), f"label {method.label!r} cannot name a folder"


def signals_of_every_group(method: Method) -> None:
    """Signals have the declared shapes and are finite, also for degenerate groups, one prompt, one token."""
    for right, longest in (((0, 1, 2, 3, 4, 4), 7), ((2,), 1), ((0,), 3), ((4,), 3), ((0, 0), 3), ((4, 4), 3)):
        inputs = step(right, longest=longest)
        signals = _signals(method, inputs)
        shape = inputs.correct_PG.shape
        expected = inputs.mask_PGT.shape if method.token_advantages else shape
        assert signals.advantage.shape == expected, f"advantage {tuple(signals.advantage.shape)}, not {tuple(expected)}"
        assert signals.advantage.dtype == torch.float64, f"advantages are {signals.advantage.dtype}, not float64"
        assert signals.advantage.isfinite().all(), f"advantages of groups with {right} of 4 correct are not finite"
        for name, flags in (("has_gradient_PG", signals.has_gradient_PG), ("counts_PG", signals.counts_PG)):
            assert flags is None or (flags.shape == shape and flags.dtype == torch.bool), f"{name} is not PG of bool"
        per_token = {name for name, column in signals.columns.items() if column.ndim == 3}
        assert {*signals.columns} - per_token == {*method.columns}, "columns are not the declared ones"
        assert per_token <= {*method.token_columns}, "token columns are not the declared ones"
        silent_PG = ~signals.has_gradient_PG & (signals.advantage_PG != 0)
        assert not silent_PG.any(), "rollouts with an advantage are marked as without gradient"


def signals_do_not_depend_on_order(method: Method) -> None:
    """Prompts, and the rollouts of a group, in another order: the same signals in that order."""
    for seed in SEEDS:
        inputs, rng = step(seed=seed), torch.Generator().manual_seed(seed)
        P, G = inputs.correct_PG.shape
        order = torch.randperm(P, generator=rng)[:, None], torch.randperm(G, generator=rng)
        expected = _signals(method, inputs).map(operator.itemgetter(order))
        reordered = _signals(method, _reordered(inputs, *order))
        _same(reordered.advantage, expected.advantage, "advantages depend on the order of prompts or rollouts")
        assert torch.equal(reordered.has_gradient_PG, expected.has_gradient_PG), "has_gradient_PG depends on the order"
        for name, column in expected.columns.items():
            _same(reordered.columns[name].double(), column.double(), f"column {name} depends on the order")


def uneven_groups_are_apart(method: Method) -> None:
    """Where `uneven_groups` is declared, a group's signals depend on that group alone, at any number of rollouts."""
    if method.uneven_groups and (reason := needs_even_groups(method)):
        raise AssertionError(f"uneven_groups is declared, but {reason}")


def needs_even_groups(method: Method) -> str:
    """The reason why groups of different sizes do not fit `method`; empty if they do."""
    for seed, rollouts in itertools.product(SEEDS, (4, 2, 3, 5, 6)):
        if contradiction := next(method.contradictions(Train(rollouts=rollouts, overlong_cache=0)), None):
            return contradiction[0]
        inputs = step([0, *range(rollouts + 1), rollouts], rollouts, seed=seed)
        whole, state = method.signals(inputs, {})
        if state:
            return "the method has a state"
        # Each group alone, as a step may have one group of a size.
        for index_P in torch.arange(len(inputs.correct_PG)).split(1):
            part, _ = method.signals(_groups(inputs, index_P), {})
            pairs = zip(_tensors(part), _tensors(whole.map(operator.itemgetter(index_P))), strict=True)
            # A group alone is not padded to the length of longer groups.
            ends = [
                (part_tensor.double(), whole_tensor.double()[..., : part_tensor.shape[-1]])
                for part_tensor, whole_tensor in pairs
            ]
            if not all(torch.allclose(part_tensor, whole_tensor, atol=TOLERANCE) for part_tensor, whole_tensor in ends):
                return f"signals of a group of {rollouts} rollouts depend on the other groups"
    return ""


def _groups(inputs: Step, index_P: Tensor) -> Step:
    """The groups of `index_P` as a separate step."""
    longest = int(inputs.length_PG[index_P].max())
    tensors: dict[str, Any] = {
        name: value[index_P] for name, value in vars(inputs).items() if isinstance(value, Tensor)
    }
    tensors |= {name: value[..., :longest] for name, value in tensors.items() if name.endswith("_PGT")}
    return dataclasses.replace(inputs, **tensors)


def _tensors(signals: Signals) -> list[Tensor]:
    """Everything that signals consist of, PG or PGT."""
    counts_PG = signals.has_gradient_PG | True if signals.counts_PG is None else signals.counts_PG
    return [signals.advantage, signals.has_gradient_PG, counts_PG, *signals.columns.values()]


def state_survives_a_checkpoint(method: Method) -> None:
    """State holds tensors only; written, read and used again it gives the same signals; signals are deterministic."""
    state: State = {}
    for seed in SEEDS:
        inputs = step(seed=seed)
        (expected, next_state), (actual, copy) = method.signals(inputs, state), method.signals(inputs, _written(state))
        assert torch.equal(expected.advantage, actual.advantage), "the state that was read again gives other advantages"
        # Before the first step it may be empty: a method without torch has no tensors to begin with.
        same_names = next_state.keys() == copy.keys() and (not state or next_state.keys() == state.keys())
        assert same_names, "the state's names change from step to step"
        state = next_state


def loss_does_not_depend_on_the_split(method: Method) -> None:
    """Loss and gradient of a mini-batch are the sums over its parts: micro-batches, ranks, any order."""
    for seed, batch in _batches(method):
        value, gradient = _loss(method, batch)
        order = torch.randperm(len(batch.mask_BT), generator=torch.Generator().manual_seed(seed))
        for sizes in (1, 5, 12):
            parts = [_loss(method, batch.select(index), batch.logp_BT) for index in order.split(sizes)]
            _same(sum(part[0] for part in parts) + value * 0, value, f"the loss differs in parts of {sizes} sequences")
            _same(sum(part[1] for part in parts) + gradient * 0, gradient, f"the gradient differs in parts of {sizes}")


def gradient_is_that_of_the_loss(method: Method) -> None:
    """Finite differences, with what is detached on purpose (`stop_gradients`) held fixed."""
    for seed, batch in _batches(method):
        gradient, rng, h = _loss(method, batch)[1], torch.Generator().manual_seed(seed), 1e-6
        direction_BT = torch.randn(gradient.shape, generator=rng, dtype=torch.float64) * batch.mask_BT

        moved_batches = [batch.replace(logp_BT=batch.logp_BT.detach() + sign * h * direction_BT) for sign in (1, -1)]
        with _detached_values_held(method, batch):
            up, down = (reduce(method.token_loss(moved_batch), moved_batch.mask_BT) for moved_batch in moved_batches)
        numeric = (up - down) / (2 * h)
        analytic = (gradient * direction_BT).sum()
        gap = float((numeric - analytic).abs())
        hint = "" if method.stop_gradients else " (is something detached? declare stop_gradients)"
        assert gap <= 1e-6 * (1 + float(analytic.abs())), f"the gradient is off by {gap:.2e} of {analytic:.2e}{hint}"


def what_is_left_out_has_no_gradient(method: Method) -> None:
    """Leaving out rollouts that the method marks as without gradient changes no gradient."""
    for seed in SEEDS:
        inputs = step(seed=seed)
        signals = _signals(method, inputs)
        # A small drift leaves some tokens within a budget.
        for drift in (0.2, 0.005):
            batch = mini_batch(method, inputs, signals, drift, seed + 10)
            gradient = _loss(method, batch)[1]
            out_B = ~signals.has_gradient_PG.flatten()
            if method.screens:
                out_B = out_B | ~method.has_gradient(batch.replace(logp_BT=batch.logp_BT.detach()))
            assert not gradient[out_B].any(), "a rollout that is marked as without gradient has one"


def padding_changes_nothing(method: Method) -> None:
    """More padding, whatever it holds of log-probability 0, changes neither loss nor report."""
    for _, batch in _batches(method):

        def wider(tensor: Tensor, width: int = batch.mask_BT.shape[1]) -> Tensor:
            is_token = tensor.ndim == 2 and tensor.shape[1] == width
            return torch.cat([tensor, tensor.new_zeros(len(tensor), 3)], dim=1) if is_token else tensor

        fields = {name: wider(value) for name, value in vars(batch).items() if isinstance(value, Tensor)}
        columns = {name: wider(column) for name, column in batch.columns.items()}
        padded_batch = batch.replace(**fields, columns=columns)
        _same(
            reduce(method.token_loss(padded_batch), padded_batch.mask_BT),
            _loss(method, batch)[0],
            "padding changes the loss",
        )


def report_adds_up(method: Method) -> None:
    """Reports are finite and add up over parts; what has no gradient adds 0 to every numerator."""
    for _, leaf_batch in _batches(method):
        batch = leaf_batch.replace(logp_BT=leaf_batch.logp_BT.detach())
        report, parts = method.report(batch), [method.report(part) for part in _parts(batch)]
        for name, (total, count) in report.sums.items():
            assert "/" in name, f"metric {name!r} is not named group/name"
            _same(sum(part.sums[name][0] for part in parts) + total * 0.0, total * 1.0, f"{name} does not add up")
            _same(sum(part.sums[name][1] for part in parts) + count * 0.0, count * 1.0, f"{name}'s count is off")
        for name, flags in report.prompts.items():
            for side, flag_B in zip(("flag", "among"), flags, strict=True):
                assert flag_B.shape == batch.group_B.shape, f"{name}: {side}_B is not one a sequence"
        has_gradient_B = method.has_gradient(batch)
        idle_batch = batch.select(~has_gradient_B)
        for name, (total, count) in method.report(idle_batch).sums.items():
            assert not total or not count, f"{name}: sequences without gradient add {float(total):g}"


def verl_computes_the_same_loss(method: Method) -> None:
    """Loss and gradient under verl, from signals that went through its queue, are the method's own.

    Nothing to compare where verl refuses the method.
    """
    if {"previous_policy", "reference_policy", "collision"} & method.needs:
        return
    from tensordict import TensorDict

    from mcpo_cli.backends.measure import MetricSums
    from mcpo_cli.backends.verl import queue
    from mcpo_cli.backends.verl.batch import MethodOutput
    from mcpo_cli.backends.verl.loss import loss

    inputs = step()
    signals = _signals(method, inputs)
    batch = mini_batch(method, inputs, signals)
    signals = signals.with_columns(batch.columns)
    used_PG = inputs.length_PG > 0
    output = MethodOutput(signals, inputs.length_PG, [batch.total], used_PG, signals.has_gradient_PG, MetricSums())
    P, G = inputs.length_PG.shape
    queue_fields = queue.fields(method, output, [(prompt, rollout) for prompt in range(P) for rollout in range(G)])
    lengths = inputs.length_PG.flatten().tolist()

    def ragged(value_BT: Tensor) -> Tensor:
        return _ragged([value_T[:length] for value_T, length in zip(value_BT, lengths, strict=True)])

    data = TensorDict(
        {
            **dict(queue_fields.items()),
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

    model_output = {"log_probs": of_model(leaf)}
    if batch.entropy_BT is not None:
        model_output["entropy"] = of_model(batch.entropy_BT)
    value, _ = loss(method, model_output, data)
    (gradient,) = torch.autograd.grad(value, leaf)
    expected = reduce(method.token_loss(batch), batch.mask_BT)
    (expected_gradient,) = torch.autograd.grad(expected, batch.logp_BT)
    # The queue holds advantages in float32.
    torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-6, atol=1e-6, check_dtype=False)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-6, check_dtype=False)


CHECKS = named(
    label,
    signals_of_every_group,
    signals_do_not_depend_on_order,
    uneven_groups_are_apart,
    state_survives_a_checkpoint,
    loss_does_not_depend_on_the_split,
    gradient_is_that_of_the_loss,
    what_is_left_out_has_no_gradient,
    padding_changes_nothing,
    report_adds_up,
    *([verl_computes_the_same_loss] if VERL_INSTALLED else []),
)
"""Each check by its name in words; its docstring states the requirement. The last one needs verl to be installed."""


def _signals(method: Method, inputs: Step) -> Signals:
    """The method's signals on a step without the fields that it does not need, as backends pass it."""
    needs = method.needs
    inputs = dataclasses.replace(
        inputs,
        logp_PGT=inputs.logp_PGT if "logp" in needs else None,
        entropy_PGT=inputs.entropy_PGT if "entropy" in needs else None,
        collision_PGT=inputs.collision_PGT if "collision" in needs else None,
        answer_PG=inputs.answer_PG if "answers" in needs else None,
        greedy_reward_P=inputs.greedy_reward_P if "greedy_reward" in needs else None,
    )
    return method.signals(inputs, {})[0]


def _batches(method: Method) -> Iterator[tuple[int, TokenBatch]]:
    for seed in SEEDS:
        inputs = step(seed=seed)
        yield seed, mini_batch(method, inputs, _signals(method, inputs), seed=seed + 10)


def _parts(batch: TokenBatch) -> list[TokenBatch]:
    return [batch.select(index) for index in torch.arange(len(batch.mask_BT)).split(5)]


def _loss(method: Method, batch: TokenBatch, leaf: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient by `leaf`: the log-probabilities of `batch`, or of the batch that it is a part of."""
    value = reduce(method.token_loss(batch), batch.mask_BT)
    leaf = batch.logp_BT if leaf is None else leaf
    (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)
    return value.detach(), gradient


def _reordered(inputs: Step, prompts: Tensor, rollouts: Tensor) -> Step:
    def change(name: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value[prompts.squeeze(-1)] if name.endswith("_P") else value[prompts, rollouts]

    return Step(**{name: change(name, value) for name, value in vars(inputs).items()})


def _ragged(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def _written(state: State) -> State:
    """The state as a resumed run has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "method.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
        return load_file(path)


@contextmanager
def _detached_values_held(method: Method, batch: TokenBatch) -> Iterator[None]:
    """Inside, each `detach()` of `token_loss` returns what it returns for `batch`, if the method declares any."""
    if not method.stop_gradients:
        yield
        return
    original, values = Tensor.detach, list[Tensor]()

    def record(tensor: Tensor) -> Tensor:
        values.append(original(tensor))
        return values[-1]

    with patch.object(Tensor, "detach", record):
        method.token_loss(batch)
    replay = itertools.cycle(values)
    with patch.object(Tensor, "detach", lambda _: next(replay)):
        yield


def _same(actual: Tensor, expected: Tensor, message: str) -> None:
    gap = float((actual - expected).detach().abs().max()) if actual.numel() else 0.0
    scale = 1 + float(expected.abs().max()) if expected.numel() else 1.0
    assert gap <= TOLERANCE * scale, f"{message}: off by {gap:.2e}"
