"""Build artifacts of suites, reports and branch studies, write them to files and print them."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli import measures
from mcpo_cli.analysis import branching as branch_tables
from mcpo_cli.analysis import forking as fork_tables
from mcpo_cli.commands import console
from mcpo_cli.commands.publish import publish_artifacts
from mcpo_cli.commands.reply import Part, Reply
from mcpo_cli.config import forking, load, plan, presets
from mcpo_cli.config.branching import Study, Trunk
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import ConfigError, MissingCells
from mcpo_cli.home import home, run_dir
from mcpo_cli.report import artifacts
from mcpo_cli.report import report as report_files
from mcpo_cli.report.artifacts import ArtifactBuilder, BuiltArtifact
from mcpo_cli.runs.journal import Journal, write_atomic
from mcpo_cli.scheduling import branches


def plans(names: Sequence[str], overrides: Sequence[str], command: str) -> dict[str, Plan]:
    """The plans of the suites that the artifacts `names` are made from, by suite.

    Raises:
        ConfigError: bad overrides, or they sweep a setting: tables, figures and claims are about a suite's own arms.
    """
    made = dict[str, Plan]()
    for suite in artifacts.suites(names):
        made[suite] = plan.from_suite(suite, overrides, command)
        if swept := {cell.arm for cell in made[suite].cells} - plan.read(suite).arms.keys():
            raise ConfigError(
                f"{suite}: its tables and figures are about its own arms, not {', '.join(sorted(swept)[:2])}, ...; "
                "only model, base_seed and seed can be swept",
                fix=shlex.join(["mcpo", "compare", suite, *overrides]),
            )
    return made


def merged(plans: Mapping[str, Plan]) -> Plan:
    """All runs of several plans as one plan to show; shared runs appear once."""
    cells = {cell.spec.run_id: cell for one in reversed(list(plans.values())) for cell in one.cells}
    command = next((one.command for one in plans.values()), "")
    return Plan(" + ".join(plans), command, tuple(cells.values()))


def builder(plans: Mapping[str, Plan], overrides: Sequence[str]) -> ArtifactBuilder:
    """Builds the artifacts of these plans, in `reports/<scale>` of MCPO_HOME.

    The scale is that of the runs if all have the same, else the one that `overrides` choose.
    """
    scales = {cell.spec.scale for one in plans.values() for cell in one.cells}
    scale = scales.pop() if len(scales) == 1 else load.chosen("scale", overrides)
    return ArtifactBuilder(plans, home() / "reports", scale, overrides)


def report(overrides: Sequence[str], suites: Sequence[Mapping[str, Any]] = ()) -> Reply:
    """Build every artifact whose runs are done; write the report, show the built and the missing artifacts.

    suites: outcomes of the runs started for the report. The reply has an error if an artifact cannot be built although
    its runs are done, or one of `suites` still lacks runs; the report is written and names it.

    Raises:
        ConfigError: bad overrides; nothing is written.
    """
    command, names = "mcpo reproduce all", _of_suites_that_take(overrides)
    made = builder(plans(names, overrides, command), overrides)
    console.talk(f"building {len(names)} tables and figures")
    content = report_files.gather(made, names)
    files = report_files.write(content, made.folder)
    document = {"suites": suites, "report": {**content.to_json(), "files": [str(path) for path in files]}}
    publish(made.plans, {piece.name: piece.built for piece in content.pieces if piece.built}, files)
    error = report_files.complaint(content, shlex.join([*command.split(), *overrides]), document)
    written = "\n".join(f"written: {path}" for path in files)
    page: list[Part] = [sentence(piece.built) for piece in content.pieces if piece.built]
    page.append(partial(console.talk, written))
    if error and not suites and isinstance(error, MissingCells):
        console.talk(f"{error.message}\nto train what is missing: {error.fix}")
        error = None
    return Reply(document, page, error)


def _of_suites_that_take(overrides: Sequence[str]) -> list[str]:
    """All artifacts except those of suites whose arms differ in a setting of `overrides`; prints the omitted names."""
    known = artifacts.registry()
    refusing = {suite for suite in artifacts.suites(list(known)) if plan.read(suite).contradicted(overrides)}
    left = [name for name, one in known.items() if refusing & {*one.needs}]
    if left:
        console.talk(f"left out, as their arms differ in what is set: {', '.join(left)}")
    return [name for name in known if name not in left]


def publish(plans: Mapping[str, Plan], built: Mapping[str, BuiltArtifact], report: Sequence[Path] = ()) -> None:
    """Log artifacts, and the report that contains them, to the parent runs of their suites in MLflow."""
    made: dict[str, list[BuiltArtifact]] = {}
    for name, one in built.items():
        for suite in artifacts.get(name).needs:
            made.setdefault(suite, []).append(one)
    publish_artifacts([(plans[suite], here) for suite, here in made.items()], report)


def page(built: BuiltArtifact, *, full: bool) -> Iterator[Part]:
    """An artifact: its sentence, its first table and the notes for that table; all of it with `full`."""
    whole, brief = built.page, built.record["brief"]
    is_short = brief is not None and not full
    yield console.paragraph(whole.title)
    yield ""
    yield console.paragraph(whole.sentence)
    for grid in whole.grids[:1] if is_short else whole.grids:
        yield from ("", console.paragraph(grid.title), "", grid)
    yield ""
    yield from map(console.remark, brief if is_short else whole.notes)
    if built.paths:
        first, *others = built.paths
        beside = f", and {' '.join(path.suffix for path in others)} beside it" if others else ""
        yield partial(console.talk, f"written: {first}{beside}")
    if is_short:
        more = f"next: --full prints {len(whole.grids) - 1} more tables and how to read them"
        yield partial(console.talk, f"{more}; mcpo ui shows the curves")


def sentence(built: BuiltArtifact) -> str:
    """An artifact's sentence, in a list of artifacts."""
    return f"{built.name}: {built.record['sentence']}"


def build_branches(
    study: str, content: Study, trunks: Sequence[Trunk], overrides: Sequence[str], command: str
) -> BuiltArtifact:
    """Write the rows of all points to a CSV file next to the report; build tables and figures from them."""
    name, scale = f"branch-{presets.stem(study)}", trunks[0].spec.scale
    rows = [row for trunk in trunks for row in branches.rows(trunk, run_dir(trunk.spec.run_id))]
    builder = ArtifactBuilder({}, home() / "reports", scale, overrides)
    path = _write_rows(builder.folder, name, pd.DataFrame(rows))
    return builder.make(branch_tables.artifact(name, content, path), command)


def build_forks(chosen: Plan, overrides: Sequence[str]) -> BuiltArtifact:
    """Write the changes by the forks of a plan to a CSV file next to the report; build table and figure from it."""
    probe, first = measures.get("fork"), chosen.cells[0].spec
    findings = {
        cell.spec.run_id: (cell.arm, probe.measure(cell.spec, Journal(run_dir(cell.spec.run_id))))
        for cell in chosen.cells
    }
    run_id, step = forking.parse(first.fork)
    name = f"fork-{run_id}-{step}"
    builder = ArtifactBuilder({}, home() / "reports", first.scale, overrides)
    path = _write_rows(builder.folder, name, fork_tables.rows(findings))
    return builder.make(fork_tables.artifact(name, run_id, step, path), chosen.command)


def _write_rows(folder: Path, name: str, rows: pd.DataFrame) -> Path:
    """Write the rows that an artifact is built from, as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-rows.csv"
    write_atomic(path, rows.to_csv(index=False, lineterminator="\n", na_rep="nan", float_format="%.6g"))
    return path
