"""Groups of different sizes in one step: the backend gets a rectangle with empty places, the method a step per size.

A method never sees an empty place. That is correct if a group's signals depend only on that group
(`Method.uneven_groups`); its signals of each group are put back into the rectangle.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from mcpo_cli.backends import checks
from mcpo_cli.methods import Method, Signals, State, Step


def signals(method: Method, step: Step, state: State) -> tuple[Signals, State]:
    """`checks.signals`. The empty places of `step` (length 0) do not count, have no gradient, and are 0 everywhere."""
    drawn_PG = step.length_PG > 0
    if drawn_PG.all():
        return checks.signals(method, step, state)
    count_P, shape = drawn_PG.sum(-1), step.mask_PGT.shape
    indices, parts = list[Tensor](), list[Signals]()
    for size in count_P.unique().tolist():
        indices.append((count_P == size).nonzero().squeeze(-1))
        found, _ = checks.signals(method, _of_size(step, indices[-1], size), state)
        counts_PG = found.has_gradient_PG | True if found.counts_PG is None else found.counts_PG
        found = dataclasses.replace(found, counts_PG=counts_PG)
        parts.append(found.map(lambda tensor: _widened(tensor, shape)))
    order_P = torch.cat(indices).argsort()
    return _concatenated(parts).map(lambda tensor: tensor[order_P]), state


def _of_size(step: Step, index_P: Tensor, size: int) -> Step:
    """The groups of `index_P`, which have `size` rollouts each, as a separate step."""
    longest = int(step.length_PG[index_P].max())

    def cut(value: Tensor) -> Tensor:
        part = value[index_P]
        return part if part.ndim == 1 else part[:, :size] if part.ndim == 2 else part[:, :size, :longest]

    parts: dict[str, Any] = {name: cut(value) for name, value in vars(step).items() if isinstance(value, Tensor)}
    return dataclasses.replace(step, **parts)


def _widened(value: Tensor, shape: torch.Size) -> Tensor:
    """PG or PGT of some groups with the places and tokens of all, `shape`; 0 there."""
    wide = value.new_zeros(len(value), *shape[1 : value.ndim])
    wide[tuple(slice(size) for size in value.shape)] = value
    return wide


def _concatenated(parts: list[Signals]) -> Signals:
    """The groups of all `parts`, which have `counts_PG`."""
    return Signals(
        torch.cat([part.advantage for part in parts]),
        torch.cat([part.has_gradient_PG for part in parts]),
        torch.cat([part.counts_PG for part in parts if part.counts_PG is not None]),
        {name: torch.cat([part.columns[name] for part in parts]) for name in parts[0].columns},
    )
