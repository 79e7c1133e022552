"""The report of `make gpu-check`: the figures of each part, as JSON and as a page."""

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from mcpo_cli import machine
from mcpo_cli.backends.verl import checks
from mcpo_cli.runs import provenance
from mcpo_cli.runs.journal import write_atomic

SCHEMA_VERSION = 1
PACKAGES = ("mcpo-cli", "torch", "triton", "transformers", "verl", "ray", "TransferQueue", "vllm", "flash-attn")
REHEARSAL = "A rehearsal on CPU, at tiny sizes: it shows that the parts work. No figure here is a result."

State = Literal["measured", "failed", "skipped"]


@dataclass(frozen=True)
class Figure:
    """One measured number and its limits; None without a limit."""

    name: str
    value: float
    unit: str
    meaning: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool:
        """True if it is a number inside its limits."""
        above = self.at_least is None or self.value >= self.at_least
        return above and self.value <= (float("inf") if self.at_most is None else self.at_most)

    @property
    def limit(self) -> str:
        """The limits in words; empty without any."""
        limits = {"at most": self.at_most, "at least": self.at_least}
        return ", ".join(f"{word} {_number(value)}" for word, value in limits.items() if value is not None)


@dataclass
class Result:
    """The outcome of one part. left_out: the reason, by the name of each figure that could not be measured."""

    letter: str
    title: str
    state: State = "measured"
    reason: str = ""
    seconds: float = 0.0
    figures: list[Figure] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def judge(self) -> None:
        """Mark the part as failed if a figure is outside its limits."""
        missed = [
            f"{one.name} is {_number(one.value)}, not {one.limit or 'a number'}"
            for one in self.figures
            if not one.holds
        ]
        if missed and self.state == "measured":
            self.state, self.reason = "failed", "; ".join(missed)

    def lines(self) -> Iterator[str]:
        """Lines for the terminal: the outcome, then the figures."""
        yield f"{self.letter}  {self.title}: {self.state}{_seconds(self)}{f': {self.reason}' if self.reason else ''}"
        for one in self.figures:
            yield f"     {one.name}: {_number(one.value)} {one.unit}{f'  ({one.limit})' if one.limit else ''}".rstrip()
        for name, reason in self.left_out.items():
            yield f"     {name}: not measured: {reason}"


class Report:
    """The results so far; written again after each part.

    folder: where `gpu-check.json` and `gpu-check.md` are written. A rehearsal writes `gpu-check-rehearsal.json` and
    `.md`, so that it never replaces figures of a GPU.
    """

    def __init__(self, folder: Path, *, rehearsal: bool) -> None:
        self.path = folder / ("gpu-check-rehearsal.json" if rehearsal else "gpu-check.json")
        self.rehearsal, self.results = rehearsal, list[Result]()
        self.header = header(rehearsal=rehearsal)

    def add(self, result: Result) -> None:
        """Add a part's result; written only if a figure was measured, so that a machine without GPU erases nothing."""
        self.results.append(result)
        if self.measured:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, json.dumps(self.to_json(), indent=2) + "\n")
            write_atomic(self.page, "\n".join(self.lines()) + "\n")

    @property
    def measured(self) -> bool:
        """True if any part was run."""
        return any(result.state != "skipped" for result in self.results)

    @property
    def page(self) -> Path:
        """The report for people."""
        return self.path.with_suffix(".md")

    def to_json(self) -> dict[str, Any]:
        """The whole report."""
        parts = [
            asdict(result) | {"figures": [asdict(figure) | {"holds": figure.holds} for figure in result.figures]}
            for result in self.results
        ]
        return {"schema_version": SCHEMA_VERSION, "rehearsal": self.rehearsal, **self.header, "parts": parts}

    def lines(self) -> Iterator[str]:
        """The page, in Markdown."""
        yield from ("# Rehearsal of the GPU check", "", REHEARSAL) if self.rehearsal else ("# GPU check",)
        yield from ("", "| | |", "|---|---|")
        for name, value in self.header.items():
            shown = ", ".join(f"{key} {of}" for key, of in value.items()) if isinstance(value, dict) else value
            if shown is not None:
                yield f"| {name.replace('_', ' ')} | {shown} |"
        for result in self.results:
            yield from ("", f"## {result.letter}: {result.title}", "")
            yield f"{result.state.capitalize()}{_seconds(result)}{f': {result.reason}' if result.reason else ''}."
            if result.figures:
                yield from ("", "| figure | value | unit | held to | what it means |", "|---|---|---|---|---|")
            for one in result.figures:
                limit = f"{one.limit}{'' if one.holds else ' **missed**'}" if one.limit else ""
                yield f"| {one.name} | {_number(one.value)} | {one.unit} | {limit} | {one.meaning} |"
            if result.left_out:
                yield from ("", *(f"- Not measured: {name}: {reason}." for name, reason in result.left_out.items()))


def header(*, rehearsal: bool) -> dict[str, Any]:
    """The machine and the code of the measurement."""
    gpus, code = machine.gpus(), provenance.code_state()
    device = provenance.processor() if rehearsal else ", ".join(gpu.name for gpu in gpus) or "no GPU"
    versions = {package: version for package in PACKAGES if (version := checks.installed(package))}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "memory_gib": None if rehearsal or not gpus else round(gpus[0].memory / machine.GIB, 1),
        "driver": machine.driver(),
        "commit": code["commit"],
        "uncommitted_changes": code["dirty"],
        "versions": {"Python": platform.python_version(), **versions},
    }


def _seconds(result: Result) -> str:
    return "" if result.state == "skipped" else f" in {result.seconds:.0f} s"


def _number(value: float) -> str:
    """Four significant digits; whole numbers as they are."""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:,.4g}"
