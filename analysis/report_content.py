"""What the report says, before it is HTML or Markdown: the artifacts of one scale, built or not, and their origins."""

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcpo_cli import __version__
from mcpo_cli.analysis import artifacts, frames, report_settings
from mcpo_cli.analysis.artifacts import Built, Workshop
from mcpo_cli.analysis.product import Artifact
from mcpo_cli.analysis.render import Grid
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.errors import McpoError, MissingCells

HEADINGS = {
    "claims": "Verdicts on the paper's claims",
    "paper": "Tables and figures of the paper",
    "beyond": "Beyond the paper",
    "audit": "Audit of the published numbers",
    "diagnostic": "Diagnostics",
}
PACKAGES = ("torch", "transformers", "verl", "vllm", *artifacts.LIBRARIES)
"""Whose versions the report names."""


@dataclass(frozen=True)
class Piece:
    """One artifact in the report: built, or why not."""

    name: str
    artifact: Artifact
    command: str
    built: Built | None = None
    errors: Sequence[McpoError] = ()

    @property
    def heading(self) -> str:
        """`Figure 5a: Mastered prompts`, or the title where the paper has no such thing."""
        return ": ".join(filter(None, [self.artifact.place, self.artifact.title]))

    @property
    def why(self) -> str:
        """Why it is not built, in a line; empty for one that is."""
        return "; ".join(error.message.partition("\n")[0] for error in self.errors)


@dataclass(frozen=True)
class Content:
    """The whole report. facts: what the runs are, by name. marks: what a reader must know before any number.

    sections: heading -> artifacts. settings: against the paper's. provenance: runs, artifacts and versions.
    """

    scale: str
    statement: str
    facts: Mapping[str, str]
    marks: Sequence[str]
    sections: Mapping[str, Sequence[Piece]]
    settings: Grid
    provenance: Sequence[Grid]
    run_ids: Sequence[str]

    @property
    def title(self) -> str:
        """Its main heading."""
        return f"MCPO: claims, tables and figures at scale {self.scale}"

    @property
    def pieces(self) -> list[Piece]:
        """The artifacts in their order."""
        return [piece for pieces in self.sections.values() for piece in pieces]

    @property
    def lacking(self) -> list[Piece]:
        """The artifacts that are not built."""
        return [piece for piece in self.pieces if piece.built is None]

    def to_json(self) -> dict[str, Any]:
        """What it was made from: runs, artifacts with the hashes of their inputs, and code."""
        built = [piece.built for piece in self.pieces if piece.built]
        return {
            "scale": self.scale,
            "mcpo": __version__,
            "code": artifacts.commit(),
            "runs": list(self.run_ids),
            "artifacts": {one.name: {key: one.record[key] for key in ("inputs", "code")} for one in built},
            "not_built": {piece.name: {"why": piece.why, "command": piece.command} for piece in self.lacking},
            "marks": list(self.marks),
        }


def gather(workshop: Workshop, names: Sequence[str]) -> Content:
    """Build the artifacts `names`, those that can be, and say what is to be said about them.

    Diagnostic ones whose runs are not done are left out: nobody asked for them.
    """
    pieces = list(_pieces_of(workshop, names))
    plans = {suite: workshop.plans[suite] for piece in pieces for suite in piece.artifact.needs}
    done = [suite for suite in plans if workshop.missing(suite) is None]
    cells = {cell.spec.run_id: cell for suite in reversed(done) for cell in workshop.runs(suite).cells}
    runs = [cells[run_id] for run_id in sorted(cells)]
    settings = report_settings.grid(plans)
    return Content(
        scale=workshop.scale,
        statement=_statement(workshop.scale, plans),
        facts=_facts(runs, settings),
        marks=[*frames.code_marks(runs), *_marks(pieces)],
        sections={
            HEADINGS[section]: here
            for section in artifacts.SECTIONS
            if (here := [piece for piece in pieces if piece.artifact.section == section])
        },
        settings=settings,
        provenance=[_runs(runs), _pieces(pieces), _versions(runs)],
        run_ids=sorted(cells),
    )


def _pieces_of(workshop: Workshop, names: Sequence[str]) -> Iterator[Piece]:
    known = artifacts.registry()
    missing = {name: [error for suite in known[name].needs if (error := workshop.missing(suite))] for name in names}
    whole = [name for name in names if not missing[name]]
    found = dict(zip(whole, workshop.build_all(whole), strict=True))
    for name in names:
        piece = partial(Piece, name, known[name], workshop.command(name))
        built = found.get(name)
        if isinstance(built, Built):
            yield piece(built)
        elif built:
            # One that these runs cannot fill keeps nothing else from being read.
            yield piece(errors=[built])
        elif known[name].section != "diagnostic":
            yield piece(errors=missing[name])


def _statement(scale: str, plans: Mapping[str, Plan]) -> str:
    if scale == "paper":
        return "The paper's experiment (Section 6.1) run anew; where it deviates is marked under Settings."
    specs = [cell.spec for plan in plans.values() for cell in plan.cells]
    models, tasks = _listed(spec.model.name for spec in specs), _listed(spec.task.name for spec in specs)
    return (
        f"A stand-in at scale {scale}, not the paper's experiment: {models} on {tasks}. It can show whether the method "
        "does what it is meant to do. Its accuracies are not those of the paper's models: published numbers stand in "
        "blocks of their own and are not to be compared with them."
    )


def _facts(runs: Sequence[Cell], settings: Grid) -> dict[str, str]:
    marks = [row[-1] for row in settings.rows if row[-2] != report_settings.NOT_STATED]
    return {
        "runs": str(len(runs)),
        "models": _listed(cell.spec.model.name for cell in runs),
        "regimes": _listed(cell.spec.regime for cell in runs),
        "seeds": _listed(cell.spec.seed for cell in runs),
        "settings": f"{marks.count(report_settings.DEVIATES)} of the paper's {len(marks)} deviate",
    }


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(set(values)))) or "none"


def _marks(pieces: Sequence[Piece]) -> Iterator[str]:
    """Values of runs that are no number, what is not built, and code that is no commit."""
    yield from dict.fromkeys(mark for piece in pieces if piece.built for mark in piece.built.record["marks"])
    if lacking := [piece.name for piece in pieces if not piece.built]:
        yield f"not built: {', '.join(lacking)}"
    built = [piece for piece in pieces if piece.built]
    if dirty := [piece.name for piece in built if piece.built and piece.built.record["code"]["dirty"]]:
        which = ", ".join(dirty) if len(dirty) < len(built) else "everything here"
        yield f"built by code with uncommitted changes: {which}"


def _runs(runs: Sequence[Cell]) -> Grid:
    rows = []
    for cell in runs:
        commits = dict.fromkeys((record.get("commit") or "unknown")[:12] for record in frames.provenance(cell))
        about = [cell.spec.run_id, cell.arm, cell.spec.model.name, ", ".join(commits), frames.tree(cell)]
        rows.append([*about, str(cell.spec.seed)])
    return Grid("Runs", ["run", "arm", "model", "commit", "working tree", "seed"], rows, labels=5)


def _pieces(pieces: Sequence[Piece]) -> Grid:
    rows = []
    for piece in pieces:
        origin = ["not built", ""]
        if piece.built:
            record = piece.built.record
            origin = [record["inputs"][:12], (record["code"]["commit"] or "unknown")[:12]]
        rows.append([piece.name, piece.command, *origin])
    header = ["artifact", "made again by", "hash of its inputs", "built by commit"]
    return Grid("Tables and figures", header, rows, labels=4)


def _versions(runs: Sequence[Cell]) -> Grid:
    """Versions and machines of the runs, several where they differ, and of what built their tables and figures."""
    records = [record for cell in runs for record in frames.provenance(cell)]
    packages = [record.get("packages", {}) for record in records]
    trained = {
        "mcpo": [record.get("mcpo") for record in records],
        "Python": [record.get("python") for record in records],
        **{name: [one.get(name) for one in packages] for name in PACKAGES},
        "machine": [_machine(record.get("machine")) for record in records],
    }
    built = {"mcpo": __version__, "Python": platform.python_version()}
    built |= {name: importlib.metadata.version(name) for name in artifacts.LIBRARIES}
    rows = [
        [name, ", ".join(dict.fromkeys(filter(None, values))), built.get(name, "")] for name, values in trained.items()
    ]
    header = ["", "runs", "tables and figures"]
    return Grid("Software and machines", header, [row for row in rows if any(row[1:])], labels=3)


def _machine(about: Mapping[str, Any] | None) -> str | None:
    if not about:
        return None
    return " + ".join([f"{about['processor']} ({about['cores']} cores, {about['memory_gib']} GiB)", *about["gpus"]])


def complaint(content: Content, command: str, data: Mapping[str, Any]) -> McpoError | None:
    """The error of a report that lacks something, None where it lacks nothing. command: what fills it."""
    if not content.lacking:
        return None
    gaps: dict[str, list[str]] = {}
    for piece in content.lacking:
        gaps.setdefault(piece.why, []).append(piece.name)
    message = "\n  ".join(["the report lacks", *(f"{', '.join(names)}: {why}" for why, names in gaps.items())])
    for error in (error for piece in content.lacking for error in piece.errors):
        if not isinstance(error, MissingCells):
            # Training does not mend it.
            return type(error)(message, fix=error.fix, data=data)
    return MissingCells(message, fix=command, data=data)
