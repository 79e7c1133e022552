"""Which rollouts an update uses. An answer that could not be graded is not wrong: nobody knows its reward.

A rollout without a verdict (`infra_error`) is left out of its group, as if it had never been sampled: it is in no mean,
no advantage and no total, and has no gradient. A method whose signals of a group depend on other groups or on the
number of rollouts (`Method.uneven_groups` is False) gets whole groups only. A group needs FEWEST graded rollouts.

Shapes: P prompt groups of at most G rollouts, T response tokens.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from mcpo_cli.backends import checks
from mcpo_cli.backends.graded import FEWEST
from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import Method, Signals, State, Step


def used(method: Method, drawn_PG: Tensor, graded_PG: Tensor) -> Tensor:
    """used_PG: the rollouts that `method` sees.

    Args:
        drawn_PG: False in the empty places of smaller groups.
        graded_PG: False where a rollout could not be graded.
    """
    used_PG = drawn_PG & graded_PG
    whole_P = used_PG.sum(-1) >= FEWEST
    if not method.uneven_groups:
        whole_P = whole_P & (used_PG == drawn_PG).all(-1)
    return used_PG & whole_P[:, None]


def signals(method: Method, step: Step, state: State, used_PG: Tensor) -> tuple[Signals, State]:
    """`checks.signals` of the rollouts `used_PG`; the others do not count, have no gradient, and are 0 everywhere.

    A method never sees the other rollouts. Groups of equal size are one step for it, which is correct if a group's
    signals depend only on that group (`Method.uneven_groups`); any other method gets the groups that are whole.

    Raises:
        RunFailed: no group is left.
    """
    if used_PG.all():
        return checks.signals(method, step, state)
    count_P = used_PG.sum(-1)
    sizes = [size for size in count_P.unique().tolist() if size]
    if not sizes:
        raise RunFailed(
            f"method={method.name} has no group to learn from: in each, rollouts could not be graded",
            fix="fix the grader, then rerun the same command: all samples and training so far are kept",
            code="ungraded",
        )
    # Graded rollouts first, in their order.
    place_PG = (~used_PG).to(torch.int8).argsort(dim=-1, stable=True)
    indices = [(count_P == size).nonzero().squeeze(-1) for size in sizes]
    places = [place_PG[index_P, :size] for index_P, size in zip(indices, sizes, strict=True)]
    steps = [_chosen(step, *selection) for selection in zip(indices, places, strict=True)]
    results = [checks.signals(method, part, state) for part in steps]
    parts = [part for part, _ in results]

    def whole(values: list[Tensor]) -> Tensor:
        value = values[0].new_zeros(step.mask_PGT.shape[: values[0].ndim])
        for index_P, place, part in zip(indices, places, values, strict=True):
            value[(index_P[:, None], place, *(slice(size) for size in part.shape[2:]))] = part
        return value

    counts = [part.has_gradient_PG | True if part.counts_PG is None else part.counts_PG for part in parts]
    columns = {name: whole([part.columns[name] for part in parts]) for name in parts[0].columns}
    advantage = whole([part.advantage for part in parts])
    whole_signals = Signals(advantage, whole([part.has_gradient_PG for part in parts]), whole(counts), columns)
    return whole_signals, state if method.uneven_groups else results[0][1]


def _chosen(step: Step, index_P: Tensor, place: Tensor) -> Step:
    """The groups of `index_P` as a separate step, each with the rollouts in its row of `place`."""
    longest = int(step.length_PG[index_P[:, None], place].max())

    def cut(value: Tensor) -> Tensor:
        if value.ndim == 1:
            return value[index_P]
        part = value[index_P[:, None], place]
        return part if part.ndim == 2 else part[:, :, :longest]

    parts: dict[str, Any] = {name: cut(value) for name, value in vars(step).items() if isinstance(value, Tensor)}
    return dataclasses.replace(step, **parts)
