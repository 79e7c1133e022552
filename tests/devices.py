"""A CUDA device simulated on CPU, to find operations that mix tensors of two devices.

Inside `SimulatedCuda`, a tensor that was moved to or created on `cuda` computes on the CPU, and its `device` is
`cuda:0`. Where CUDA would refuse an operation because of its devices, RuntimeError is raised. The backward pass and
functions that run inside it are not observed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
MARK = "simulated_cuda"
"""Attribute of the tensors that are on the simulated device."""

DECIDES = {"cpu": 0, "to": -1, "copy_": 0, "__set__": 0, "__deepcopy__": 0}
"""Functions that take tensors of two devices, with the argument that decides the device of the result."""


class SimulatedCuda(TorchFunctionMode):
    """The simulation; `moves` counts copies from one device to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if name == "__get__" and attribute in ("device", "is_cuda") and on_cuda(args[0]):
            return CUDA if attribute == "device" else True
        if name in ("_parse_to", "_has_compatible_shallow_copy_type"):
            return func(*args, **kwargs)
        if name == "numpy" and on_cuda(args[0]):
            raise RuntimeError("numpy() of a tensor on cuda")
        target = _target(name, args, kwargs)
        found = func(*_without_cuda(args), **_without_cuda(kwargs))
        if (name, attribute) == ("__set__", "data"):
            _mark(args[0], on_cuda(args[1]))
        elif name in ("to", "cpu", "cuda"):
            self.moves += target != on_cuda(args[0])
            # Without a change of the type of number the CPU returns the same tensor.
            found = found.clone() if found is args[0] and target != on_cuda(args[0]) else found
        for tensor in _tensors(found):
            _mark(tensor, target)
        return found


def on_cuda(tensor: Tensor) -> bool:
    """True if the tensor is on the simulated device."""
    return getattr(tensor, MARK, False)


def _target(name: str, args: Any, kwargs: Any) -> bool:
    """True if the results of a function are on the simulated device.

    Raises:
        RuntimeError: CUDA refuses the devices of its arguments.
    """
    inputs = list(_tensors((args, kwargs)))
    if (asked := next(_devices((args, kwargs)), None)) is not None:
        return asked.type == "cuda"
    if name in DECIDES:
        return name != "cpu" and on_cuda(inputs[DECIDES[name]])
    if name == "__getitem__" or (name == "__setitem__" and not on_cuda(inputs[0])):
        _refuse(name, [inputs[0], *(index for index in inputs[1:] if on_cuda(index))])
        return on_cuda(inputs[0])
    if name == "__setitem__":
        indexed = any(True for _ in _tensors(args[1]))
        _refuse(name, [inputs[0], *(_tensors(args[2]) if indexed else ())])
        return True
    _refuse(name, inputs)
    return any(map(on_cuda, inputs))


def _refuse(name: str, inputs: list[Tensor]) -> None:
    """Raise RuntimeError if tensors are on both devices; a number on the CPU is accepted on CUDA."""
    if any(map(on_cuda, inputs)) and any(not on_cuda(tensor) and tensor.ndim for tensor in inputs):
        where = ", ".join(f"{'cuda' if on_cuda(tensor) else 'cpu'} {tuple(tensor.shape)}" for tensor in inputs)
        raise RuntimeError(f"{name}: expected all tensors on one device: {where}")


def _mark(tensor: Tensor, target: bool) -> None:
    if on_cuda(tensor) != target:
        setattr(tensor, MARK, target)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _tensors(value: Any) -> Iterator[Tensor]:
    return (leaf for leaf in _leaves(value) if isinstance(leaf, Tensor))


def _devices(value: Any) -> Iterator[torch.device]:
    for leaf in _leaves(value):
        if isinstance(leaf, torch.device):
            yield leaf


def _without_cuda(value: Any) -> Any:
    """`value` with the CPU in place of CUDA."""
    if isinstance(value, Mapping):
        return {key: _without_cuda(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_without_cuda, value))
    return CPU if isinstance(value, torch.device) and value.type == "cuda" else value
