"""Differences between a global step's records and state, and the same step's when it is trained again."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from mcpo_cli.records import StepRow
from mcpo_cli.runs import folders
from mcpo_cli.runs.journal import Journal, Kind, finite

CLOCKS = ("perf/", "system/", "cost/seconds")
"""Prefixes of metrics that measure the machine's time and memory, which differ between any two trainings."""
ORDER: tuple[Kind, ...] = ("groups", "samples", "rerolls", "gradients", "mini_batches")
"""The kinds of rows that a step writes before its metrics, in the order in which it computes them."""
TOLERANCE = 1e-3
"""The relative difference that rounding on another CPU may make in one number of a step."""
ROUNDING = "sanity/logp_difference"
"""The metric that measures the CPU's own rounding; it is not compared when a tolerance applies."""
FLOOR = 1e-5
"""Numbers whose absolute difference is below this agree under the tolerance, even if they are small."""


@dataclass(frozen=True)
class Difference:
    """One value that differs."""

    step: int
    records: str
    """`metrics`, `weights`, a kind of rows such as `groups`, or `checkpoint`."""
    row: int
    """The row's number in its file, from 1; 0 if the records have no rows."""
    column: str
    recorded: Any
    """None: the value is absent."""
    repeated: Any

    def to_json(self) -> dict[str, Any]:
        """The fields, as plain data."""
        return cast("dict[str, Any]", finite(asdict(self)))

    def __str__(self) -> str:
        row = f", row {self.row}" if self.row else ""
        return f"step {self.step}, {self.records}{row}: {self.column} is {self.recorded!r}, and {self.repeated!r} again"


@dataclass(frozen=True)
class Compared:
    """The number of values of a step that were compared, and the values that differ, in the order of the records."""

    step: int
    values: int
    weights: bool
    """True if the weights after the step were among them, by their hash or themselves."""
    differing: Sequence[Difference]


def agree(recorded: Any, repeated: Any, *, exactly: bool) -> bool:
    """True if two values of a record are the same: bit by bit, or numbers within TOLERANCE.

    Not-a-number agrees with itself.
    """
    numbers = all(type(value) in (int, float) for value in (recorded, repeated))
    if not numbers or exactly:
        return json.dumps(recorded) == json.dumps(repeated)
    return math.isclose(recorded, repeated, rel_tol=TOLERANCE, abs_tol=FLOOR)


def of_step(recorded: Journal, repeated: Journal, step: int, *, exactly: bool) -> Compared:
    """Compare all records of a step, without the times that training took.

    exactly: bit by bit, including the hash of the weights; else numbers within TOLERANCE.

    Raises:
        RunFailed: records are damaged.
    """
    values, hashed, differing = 0, False, list[Difference]()
    for records, old_rows, new_rows in _records(recorded, repeated, step):
        for number, (old, new) in enumerate(zip(old_rows, new_rows, strict=False), start=1):
            for column in {**old, **new}:
                if (column == "weights" and column not in old) or (
                    not exactly and column.startswith((ROUNDING, "weights"))
                ):
                    continue
                values, hashed = values + 1, hashed or column == "weights"
                if not agree(old.get(column), new.get(column), exactly=exactly):
                    row = number if records != "metrics" else 0
                    differing.append(Difference(step, records, row, column, old.get(column), new.get(column)))
        if len(old_rows) != len(new_rows):
            differing.append(Difference(step, records, 0, "number of rows", len(old_rows), len(new_rows)))
    return Compared(step, values, hashed, differing)


def of_states(recorded: Path, repeated: Path, step: int, *, exactly: bool) -> Compared:
    """Compare the checkpoints of `step` in two folders of one run: weights, moments, a method's state, data position.

    The result names, for each tensor, the first number that differs.

    Args:
        exactly: bit by bit; otherwise two numbers agree if they differ by at most TOLERANCE of their tensor's largest.
    """
    old_state, new_state = (folders.load(folders.checkpoints(folder)[step]) for folder in (recorded, repeated))
    old_tensors, new_tensors = (
        {f"{file}/{name}": tensor for file, tensors in state.tensors.items() for name, tensor in tensors.items()}
        for state in (old_state, new_state)
    )
    values, differing = 1, list[Difference]()

    def differs(column: str, old: object, new: object) -> None:
        differing.append(Difference(step, "checkpoint", 0, column, old, new))

    if old_state.cursor != new_state.cursor:
        differs("place in the training stream", old_state.cursor, new_state.cursor)
    for name in sorted(old_tensors.keys() | new_tensors.keys()):
        old, new = old_tensors.get(name), new_tensors.get(name)
        if old is None or new is None or old.shape != new.shape or old.dtype != new.dtype:
            differs(name, *(None if value is None else f"{value.dtype} {list(value.shape)}" for value in (old, new)))
            continue
        values += old.numel()
        tolerance = 0.0 if exactly else TOLERANCE * float(old.abs().max())
        # Written so that a NaN always differs.
        wrong = ((old != new) & ~((old - new).abs() <= tolerance)).nonzero() if old.numel() else old.nonzero()
        if len(wrong):
            index = tuple(wrong[0].tolist())
            differs(f"{name}{list(index)}", old[index].item(), new[index].item())
    return Compared(step, values, weights=True, differing=differing)


Rows = Sequence[Mapping[str, Any]]


def _records(recorded: Journal, repeated: Journal, step: int) -> Iterator[tuple[str, Rows, Rows]]:
    """Each kind of records with its rows of this step, flat, in the order in which a step writes them."""

    def rows(kind: Kind) -> tuple[str, Rows, Rows]:
        return kind, _rows(recorded, kind, step), _rows(repeated, kind, step)

    def metrics(journal: Journal) -> Rows:
        return [_flat(row) for row in journal.steps() if row["step"] == step]

    yield from map(rows, ORDER)
    yield "metrics", metrics(recorded), metrics(repeated)
    yield rows("eval")


def _rows(journal: Journal, kind: Kind, step: int) -> Rows:
    files = journal.files(kind)
    return [_columns(row) for row in journal.read(files[step])] if step in files else []


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's columns; each sum and each count of a mini-batch is a column."""
    columns = dict[str, Any]()
    for key, value in row.items():
        if isinstance(value, Mapping):
            for name, (total, count) in value.items():
                columns |= {f"{name} (sum)": total, f"{name} (count)": count}
        else:
            columns[key] = value
    return columns


def _flat(row: StepRow) -> dict[str, Any]:
    metrics = {name: value for name, value in row["metrics"].items() if not name.startswith(CLOCKS)}
    return metrics | ({"weights": row["weights"]} if "weights" in row else {})
