"""The parts of the check, in order. Each module has `measure(notes, device, folder)`; `folder` is its own, and empty.

Each module has its sizes by device: those of the check on `cuda`, those of a rehearsal on `cpu`.
"""

import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One part. needs: packages, by the names they are imported by."""

    letter: str
    title: str
    name: str
    needs: tuple[str, ...]

    @property
    def module(self) -> str:
        """The module that measures it."""
        return f"{__name__}.{self.name}"

    @property
    def lacks(self) -> list[str]:
        """The packages that it needs and that are not installed."""
        return [package for package in self.needs if importlib.util.find_spec(package) is None]


ENGINE = ("torch", "transformers")
VERL = (*ENGINE, "verl", "ray", "tensordict", "transfer_queue")
PARTS = {
    part.letter: part
    for part in (
        Part("A", "verl's engine against the local backend; offload; save and resume", "engine", VERL),
        Part("B", "log-probabilities of a policy that has not moved", "drift", VERL),
        Part("C", "memory and utilisation of Qwen3-8B", "utilisation", VERL),
        Part("D", "sequences without a gradient are left out", "rows", VERL),
        Part("E", "whole runs: MCPO killed and resumed, DAPO, the local engine", "training", VERL),
        Part("F", "the local engine", "local", ENGINE),
        Part("G", "the local engine with a model that exists", "existing", ENGINE),
    )
}
