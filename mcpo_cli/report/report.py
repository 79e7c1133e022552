"""The report: the artifacts of one scale, built or missing, and their provenance, as one page.

`gather` collects the content, `write` writes `report.html`, which is self-contained, `report.md` for GitHub, and
`report.json`. The same content gives the same bytes, except for the line with the date.
"""

import base64
import importlib.metadata
import json
import platform
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from mcpo_cli import __version__
from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.config.schema import digest
from mcpo_cli.errors import McpoError, MissingRuns
from mcpo_cli.measures import frames
from mcpo_cli.render import markup, pages
from mcpo_cli.render.markup import Grid
from mcpo_cli.render.product import CONCLUSIONS, DIAGNOSTICS, SUMMARY, Artifact, in_report_order
from mcpo_cli.report import artifacts, builder
from mcpo_cli.report.builder import ArtifactBuilder, BuiltArtifact
from mcpo_cli.runs.journal import write_atomic
from mcpo_cli.runs.provenance import code_name

PACKAGES = ("torch", "transformers", "verl", "vllm", *builder.LIBRARIES)
"""Packages whose versions the report lists."""
DENSITY = 1.4
"""Image pixels per page pixel: a picture as wide as a paper's text is as wide as a page's column."""


@dataclass(frozen=True)
class Piece:
    """One artifact in the report."""

    name: str
    artifact: Artifact
    command: str
    """The command that builds it."""
    built: BuiltArtifact | None = None
    """None if it could not be built."""
    errors: Sequence[McpoError] = ()
    """The reasons why it could not be built."""

    @property
    def heading(self) -> str:
        """Its title, after its place if it has one: `Figure 5a: Mastered prompts`."""
        return ": ".join(filter(None, [self.artifact.place, self.artifact.title]))

    @property
    def why(self) -> str:
        """The reason why it is not built, in one line; empty if it is built."""
        return "; ".join(error.message.partition("\n")[0] for error in self.errors)


@dataclass(frozen=True)
class ReportContent:
    """The whole report."""

    scale: str
    facts: Mapping[str, str]
    """Facts about the runs (number, models, seeds, ...) by name."""
    marks: Sequence[str]
    """Warnings that a reader needs before any number."""
    summary: Sequence[Piece]
    """The artifacts of the first screen."""
    sections: Mapping[str, Sequence[Piece]]
    """The other artifacts by heading."""
    software: Mapping[str, str]
    """Versions of packages and names of machines that the runs were trained with, several if they differ."""
    provenance: Sequence[Grid]
    """Runs, artifacts and software versions."""
    run_ids: Sequence[str]

    @property
    def title(self) -> str:
        """The main heading."""
        return f"Claims, tables and figures at scale {self.scale}"

    @property
    def conclusion(self) -> list[str]:
        """The sentences to read first: the outcome, and which claims hold after correction."""
        first_pieces = [*self.summary, *self.sections.get(CONCLUSIONS, ())]
        return [piece.built.page.sentence for piece in first_pieces if piece.built]

    @property
    def pieces(self) -> list[Piece]:
        """The artifacts in report order."""
        return [*self.summary, *(piece for pieces in self.sections.values() for piece in pieces)]

    @property
    def opened(self) -> Piece | None:
        """The artifact that a phone shows at first; the others are folded there."""
        return next((piece for pieces in self.sections.values() for piece in pieces if piece.built), None)

    @property
    def lacking(self) -> list[Piece]:
        """The artifacts that are not built."""
        return [piece for piece in self.pieces if piece.built is None]

    def to_json(self) -> dict[str, Any]:
        """Its provenance: runs, code, and artifacts with the hashes of their inputs."""
        built = [piece.built for piece in self.pieces if piece.built]
        return {
            "scale": self.scale,
            "content": self.facts["content"],
            "mcpo": __version__,
            "code": builder.commit(),
            "software": dict(self.software),
            "runs": list(self.run_ids),
            "artifacts": {
                artifact.name: {key: artifact.record[key] for key in ("inputs", "code")} for artifact in built
            },
            "not_built": {piece.name: {"why": piece.why, "command": piece.command} for piece in self.lacking},
            "marks": list(self.marks),
        }


def gather(builder: ArtifactBuilder, names: Sequence[str]) -> ReportContent:
    """Build the artifacts `names` as far as possible and collect the content of the report.

    Diagnostic artifacts whose runs are not done are left out, because they are optional.
    """
    pieces = list(_pieces_of(builder, names))
    plans = {suite: builder.plans[suite] for piece in pieces for suite in piece.artifact.needs}
    done_suites = [suite for suite in plans if builder.missing(suite, failed_too=True) is None]
    runs_of = {suite: builder.runs(suite, failed_too=True).planned for suite in done_suites}
    by_id = {run.spec.run_id: run for suite in reversed(done_suites) for run in runs_of[suite]}
    runs = [by_id[run_id] for run_id in sorted(by_id)]
    software = _software(runs)
    return ReportContent(
        scale=builder.scale,
        facts=_facts(runs, pieces),
        marks=[*frames.code_marks(runs), *_marks(pieces)],
        summary=[piece for piece in pieces if piece.artifact.section == SUMMARY],
        sections={
            heading: members
            for heading in in_report_order(piece.artifact.section for piece in pieces)
            if heading != SUMMARY and (members := [piece for piece in pieces if piece.artifact.section == heading])
        },
        software=software,
        provenance=[_runs(runs), _pieces(pieces), _versions(software)],
        run_ids=sorted(by_id),
    )


def _pieces_of(builder: ArtifactBuilder, names: Sequence[str]) -> Iterator[Piece]:
    registry = artifacts.registry()
    errors_of = {
        name: [error for suite in artifact.needs if (error := builder.missing(suite, failed_too=artifact.failed_too))]
        for name, artifact in ((name, registry[name]) for name in names)
    }
    complete_names = [name for name in names if not errors_of[name]]
    outcomes = dict(zip(complete_names, builder.build_all(complete_names), strict=True))
    for name in names:
        piece = partial(Piece, name, registry[name], builder.command(name))
        built = outcomes.get(name)
        if isinstance(built, BuiltArtifact):
            yield piece(built)
        elif built:
            # An artifact that fails does not stop the others.
            yield piece(errors=[built])
        elif registry[name].section != DIAGNOSTICS:
            yield piece(errors=errors_of[name])


def _facts(runs: Sequence[PlannedRun], pieces: Sequence[Piece]) -> dict[str, str]:
    return {
        "runs": str(len(runs)),
        "models": _listed(run.spec.model.name for run in runs),
        "regimes": _listed(run.spec.regime for run in runs),
        "seeds": _listed(run.spec.seed for run in runs),
        # Equal for all reports whose tables and figures have equal files.
        "content": digest({piece.name: piece.built.record["files"] for piece in pieces if piece.built}),
    }


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(set(values)))) or "none"


def _marks(pieces: Sequence[Piece]) -> Iterator[str]:
    """Warnings about artifacts: metrics that are not finite, missing artifacts, code with uncommitted changes."""
    yield from dict.fromkeys(mark for piece in pieces if piece.built for mark in piece.built.record["marks"])
    if missing_names := [piece.name for piece in pieces if not piece.built]:
        yield f"not built, {len(missing_names)} of {len(pieces)}: {', '.join(missing_names)}"
    built = [piece for piece in pieces if piece.built]
    if dirty_names := [piece.name for piece in built if piece.built and piece.built.record["code"]["dirty"]]:
        listing = ", ".join(dirty_names) if len(dirty_names) < len(built) else "everything here"
        yield f"built by code with uncommitted changes: {listing}"


def _runs(runs: Sequence[PlannedRun]) -> Grid:
    rows = []
    for run in runs:
        commits = dict.fromkeys(code_name(record) or "unknown" for record in frames.provenance(run))
        cells = [run.spec.run_id, run.arm, run.spec.model.name, ", ".join(commits), frames.tree(run)]
        rows.append([*cells, str(run.spec.seed_of_base), str(run.spec.seed)])
    return Grid("Runs", ["run", "arm", "model", "commit", "working tree", "base seed", "seed"], rows, labels=5)


def _pieces(pieces: Sequence[Piece]) -> Grid:
    rows = []
    for piece in pieces:
        origin = ["not built", ""]
        if piece.built:
            record = piece.built.record
            origin = [record["inputs"][:12], code_name(record["code"]) or "unknown"]
        rows.append([piece.name, piece.command, *origin])
    header = ["artifact", "command to rebuild it", "hash of its inputs", "built by commit"]
    return Grid("Tables and figures", header, rows, labels=4)


def _software(runs: Sequence[PlannedRun]) -> dict[str, str]:
    records = [record for run in runs for record in frames.provenance(run)]
    packages = [record.get("packages", {}) for record in records]
    by_name = {
        "mcpo": [record.get("mcpo") for record in records],
        "Python": [record.get("python") for record in records],
        **{name: [package.get(name) for package in packages] for name in PACKAGES},
        "machine": [_machine(record.get("machine")) for record in records],
    }
    return {name: ", ".join(dict.fromkeys(filter(None, values))) for name, values in by_name.items()}


def _versions(software: Mapping[str, str]) -> Grid:
    """Software versions and machines of the runs, and versions of the software that made the tables and figures."""
    own_versions = {"mcpo": __version__, "Python": platform.python_version()}
    own_versions |= {name: importlib.metadata.version(name) for name in builder.LIBRARIES}
    rows = [[name, versions, own_versions.get(name, "")] for name, versions in software.items()]
    header = ["", "runs", "tables and figures"]
    return Grid("Software and machines", header, [row for row in rows if any(row[1:])], labels=3)


def _machine(facts: Mapping[str, Any] | None) -> str | None:
    if not facts or not {"processor", "cores", "memory_gib", "gpus"} <= facts.keys():
        return None
    text = f"{facts['processor']} ({facts['cores']} cores, {facts['memory_gib']} GiB)"
    return " + ".join([text, *map(str, facts["gpus"])])


def complaint(content: ReportContent, command: str, data: Mapping[str, Any]) -> McpoError | None:
    """The error for a report with missing artifacts; None if it is complete. command: what completes the runs."""
    if not content.lacking:
        return None
    gaps: dict[str, list[str]] = {}
    for piece in content.lacking:
        gaps.setdefault(piece.why, []).append(piece.name)
    message = "\n  ".join(["the report lacks", *(f"{', '.join(names)}: {reason}" for reason, names in gaps.items())])
    for error in (error for piece in content.lacking for error in piece.errors):
        if not isinstance(error, MissingRuns):
            # More training does not fix this error.
            return type(error)(message, fix=error.fix, data=data)
    return MissingRuns(message, fix=command, data=data)


def write(content: ReportContent, folder: Path) -> list[Path]:
    """Write the report into `folder`, which also holds the artifact files that it links to; return its files."""
    date = f"written on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by mcpo {__version__}"
    document = json.dumps(content.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    files = {"report.html": html(content, date), "report.md": markdown(content, date), "report.json": document}
    for name, text in files.items():
        write_atomic(folder / name, text)
    return [folder / name for name in files]


def html(content: ReportContent, date: str) -> str:
    """A self-contained HTML page: pictures, style and the script of its search are part of it."""
    return _rendered("report.html.jinja", content, date) + "\n"


def markdown(content: ReportContent, date: str) -> str:
    """GitHub-flavoured Markdown with relative links."""
    return re.sub(r"\n{3,}", "\n\n", _rendered("report.md.jinja", content, date)).strip() + "\n"


def _rendered(template: str, content: ReportContent, date: str) -> str:
    environment = pages.templates(Path(__file__).parent, html=".html." in template)
    environment.filters |= {"pixels": _pixels}
    environment.filters["base64"] = lambda path: base64.b64encode(path.read_bytes()).decode()
    environment.filters["slug"] = lambda heading: re.sub(r"[^a-z]+", "-", heading.lower())  # the anchor of a section
    environment.filters |= {"escaped": markup.escaped, "pipes": markup.pipes, "code": markup.code}
    page = environment.get_template(template)
    return page.render(content=content, date=date)


def _pixels(path: Path) -> tuple[int, int]:
    """Width and height on the page, read from the header of the PNG file."""
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return round(width / DENSITY), round(height / DENSITY)
