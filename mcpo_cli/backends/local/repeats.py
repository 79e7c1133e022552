"""Global steps of a finished run, trained again, and the states that they end in."""

import dataclasses
from collections.abc import Collection
from pathlib import Path

import transformers
from torch import Tensor

from mcpo_cli.backends import Stop
from mcpo_cli.backends.local import checkpoint, kept
from mcpo_cli.backends.local.policy import product_precision
from mcpo_cli.backends.local.train import begin
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.differences import TOLERANCE, Compared, Difference


def repeat(spec: RunSpec, attempt: Attempt, stop: Stop, steps: Collection[int]) -> None:
    """Train from the checkpoint that the attempt starts after as far as the last of `steps`; keeps their states.

    Raises:
        Interrupted: `stop` said so. RunFailed: the run cannot go on.
    """
    transformers.utils.logging.disable_progress_bar()  # it is somebody's terminal that this runs in
    # The one that `stop` has it write, and the base policy's, are beside theirs.
    compute = dataclasses.replace(spec.compute, checkpoints=len(steps) + 2)
    trainer = begin(dataclasses.replace(spec, compute=compute), attempt, stop)
    with product_precision(trainer.policy):
        trainer.train(stop, steps)


def compare_states(recorded: Path, repeated: Path, step: int, *, exactly: bool) -> Compared:
    """Compare the checkpoints of `step` in two folders of one run: weights, moments, a method's state, data position.

    Of each tensor that differs, the first such number is named.

    Args:
        exactly: bit by bit; else two numbers agree if they differ by TOLERANCE of their tensor's largest at most.
    """
    ours, theirs = (checkpoint.load(kept.at(folder, step)) for folder in (recorded, repeated))
    tensors = [_flat(one) for one in (ours, theirs)]
    values, differing = 1, list[Difference]()
    if ours.cursor != theirs.cursor:
        differing.append(_difference(step, "place in the training stream", ours.cursor, theirs.cursor))
    for name in sorted(tensors[0].keys() | tensors[1].keys()):
        one, other = (named.get(name) for named in tensors)
        if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
            shapes = (None if value is None else f"{value.dtype} {list(value.shape)}" for value in (one, other))
            differing.append(_difference(step, name, *shapes))
            continue
        values += one.numel()
        allowed = 0.0 if exactly else TOLERANCE * float(one.abs().max())
        # Written so that not-a-number differs from everything but the same bits.
        wrong = ((one != other) & ~((one - other).abs() <= allowed)).nonzero() if one.numel() else one.nonzero()
        if len(wrong):
            place = tuple(wrong[0].tolist())
            named = f"{name}{list(place)}"
            differing.append(_difference(step, named, one[place].item(), other[place].item()))
    return Compared(step, values, weights=True, differing=differing)


def _flat(saved: checkpoint.Checkpoint) -> dict[str, Tensor]:
    return {f"{part}/{name}": value for part, named in saved.tensors.items() for name, value in named.items()}


def _difference(step: int, column: str, recorded: object, repeated: object) -> Difference:
    return Difference(step, "checkpoint", 0, column, recorded, repeated)
