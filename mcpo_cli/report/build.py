"""Build artifacts of suites, forks and branch studies, and the report of all of them; log them to MLflow."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mcpo_cli import measures
from mcpo_cli.config import forking, load, plan, presets
from mcpo_cli.config.branching import Study, Trunk
from mcpo_cli.config.plan import Plan
from mcpo_cli.errors import ConfigError, McpoError, MissingRuns
from mcpo_cli.home import home, run_dir
from mcpo_cli.render import markup
from mcpo_cli.report import artifacts
from mcpo_cli.report import branching as branch_tables
from mcpo_cli.report import forking as fork_tables
from mcpo_cli.report import report as report_files
from mcpo_cli.report.builder import ArtifactBuilder, BuiltArtifact
from mcpo_cli.runs.journal import Journal, write_atomic
from mcpo_cli.scheduling import branches
from mcpo_cli.scheduling.display import talk
from mcpo_cli.trackers import upload
from mcpo_cli.trackers.descriptions import headline_name

if TYPE_CHECKING:
    from mcpo_cli.trackers.mlflow import Store


@dataclass(frozen=True)
class Build:
    """What `build` made."""

    artifacts: Mapping[str, BuiltArtifact]
    """By name, without artifacts that could not be built."""
    document: Mapping[str, Any]
    files: Sequence[Path] = ()
    """The files of the report."""
    error: McpoError | None = None
    """The error that ends the command although the report is written; the report names it."""
    missing: str = ""
    """What the report lacks where nothing was trained for it, and the command that trains it; empty if complete."""


def chosen(wanted: str, overrides: Sequence[str]) -> list[str]:
    """The artifacts that `wanted` selects (`artifacts.names`).

    `all` leaves out artifacts of suites whose arms differ in a setting of `overrides`, and names them on stderr.

    Raises:
        ConfigError: `wanted` selects nothing.
    """
    if wanted != artifacts.ALL:
        return artifacts.names(wanted)
    registry = artifacts.registry()
    refusing_suites = {suite for suite in artifacts.suites(list(registry)) if plan.read(suite).contradicted(overrides)}
    skipped_names = [name for name, artifact in registry.items() if refusing_suites & {*artifact.needs}]
    if skipped_names:
        talk(f"left out, as their arms differ in what is set: {', '.join(skipped_names)}")
    return [name for name in registry if name not in skipped_names]


def plans(names: Sequence[str], overrides: Sequence[str], command: str) -> dict[str, Plan]:
    """The plans of the suites that the artifacts `names` are made from, by suite.

    Raises:
        ConfigError: bad overrides, or they sweep a setting: tables, figures and claims are about a suite's own arms.
    """
    suite_plans = dict[str, Plan]()
    for suite in artifacts.suites(names):
        suite_plans[suite] = plan.from_suite(suite, overrides, command)
        if extras := {run.arm for run in suite_plans[suite].runs} - plan.read(suite).arms.keys():
            raise ConfigError(
                f"{suite}: its tables and figures are about its own arms, not {', '.join(sorted(extras)[:2])}, ...; "
                "only model, base_seed and seed can be swept",
                fix=shlex.join(["mcpo", "compare", suite, *overrides]),
            )
    return suite_plans


def merged(plans: Mapping[str, Plan]) -> Plan:
    """All runs of several plans as one plan to show; shared runs appear once."""
    runs = {run.spec.run_id: run for suite_plan in reversed(list(plans.values())) for run in suite_plan.runs}
    command = next((suite_plan.command for suite_plan in plans.values()), "")
    return Plan(" + ".join(plans), command, tuple(runs.values()))


def builder(plans: Mapping[str, Plan], overrides: Sequence[str]) -> ArtifactBuilder:
    """Builds the artifacts of these plans, in `reports/<scale>` of MCPO_HOME.

    The scale is that of the runs if all have the same, else the one that `overrides` choose; of several, all of them.
    """
    scales = [*{run.spec.scale for planned in plans.values() for run in planned.runs}]
    if len(scales) > 1:
        scales = [*dict.fromkeys(load.chosen("scale", words) for words in plan.by_scale(overrides))]
    scale = "+".join(scales)
    return ArtifactBuilder(plans, home() / "reports", scale, overrides)


def build(made: ArtifactBuilder, names: Sequence[str], *, suites: Sequence[Mapping[str, Any]], report: str) -> Build:
    """Build artifacts, and log them to the parent runs of their suites in MLflow.

    Args:
        suites: outcomes of the runs that were started for the artifacts.
        report: the command that completes the report. The report contains every artifact whose runs are done, and names
            the others. Empty for artifacts without a report: all of these have to be built.

    Raises:
        MissingRuns: without a report, a run is not done.
    """
    if not report:
        built = {name: made.build(name) for name in names}
        _upload(made.plans, built)
        documents = {name: artifact.to_json() for name, artifact in built.items()}
        return Build(built, {"suites": suites, "artifacts": documents})
    talk(f"building {len(names)} tables and figures")
    content = report_files.gather(made, names)
    files = report_files.write(content, made.folder)
    built = {piece.name: piece.built for piece in content.pieces if piece.built}
    _upload(made.plans, built, files)
    document = {"suites": suites, "report": {**content.to_json(), "files": [str(path) for path in files]}}
    error = report_files.complaint(content, report, document)
    if error and not suites and isinstance(error, MissingRuns):
        return Build(built, document, files, missing=f"{error.message}\nto train what is missing: {error.fix}")
    return Build(built, document, files, error)


def _upload(plans: Mapping[str, Plan], built: Mapping[str, BuiltArtifact], report: Sequence[Path] = ()) -> None:
    by_suite: dict[str, list[BuiltArtifact]] = {}
    for name, artifact in built.items():
        for suite in artifacts.get(name).needs:
            by_suite.setdefault(suite, []).append(artifact)
    upload_artifacts([(plans[suite], suite_artifacts) for suite, suite_artifacts in by_suite.items()], report)


def upload_artifacts(built: Sequence[tuple[Plan, Sequence[BuiltArtifact]]], report: Sequence[Path] = ()) -> None:
    """Log the artifacts of each plan, with the report, to its parent run in the store that the first plan names.

    The headline differences of comparisons become metrics of that run.
    """

    def send(store: "Store") -> None:
        from mcpo_cli.trackers.results import log_artifacts

        for parent, items in built:
            files = [path for item in items for path in (*item.paths, item.folder / f"{item.name}.json")]
            headlines = {name: value for item in items for name, value in _headlines(item).items()}
            table = next((item for item in items if item.name == presets.stem(parent.suite) and item.grids), None)
            grid = f"{markup.escaped(table.page.sentence)}\n\n{markup.pipes(table.grids[0])}" if table else ""
            results = (table.page.sentence, grid) if table else ()
            log_artifacts(store, parent, [*report, *files], headlines, *results)

    if built:
        upload.upload(built[0][0].runs[0].spec.compute.tracking_uri, send, talk)


def _headlines(built: BuiltArtifact) -> dict[str, float]:
    """A comparison's known headline differences by their metric.

    MLflow draws a chart of one bar for each metric, so all other numbers are in the tables only.
    """
    return {
        headline_name(row): row["mean"]
        for row in built.to_json()["rows"]
        if row.get("family") == "headline" and row["mean"] is not None
    }


def build_branches(
    study: str, content: Study, trunks: Sequence[Trunk], overrides: Sequence[str], command: str
) -> BuiltArtifact:
    """Write the rows of all points to a CSV file next to the report; build tables and figures from them."""
    name, scale = f"branch-{presets.stem(study)}", trunks[0].spec.scale
    rows = [row for trunk in trunks for row in branches.rows(trunk, run_dir(trunk.spec.run_id))]
    artifact_builder = ArtifactBuilder({}, home() / "reports", scale, overrides)
    path = _write_rows(artifact_builder.folder, name, pd.DataFrame(rows))
    return artifact_builder.make(branch_tables.artifact(name, content, path), command)


def build_forks(chosen: Plan, overrides: Sequence[str]) -> BuiltArtifact:
    """Write the changes by the forks of a plan to a CSV file next to the report; build table and figure from it."""
    probe, first_spec = measures.get("fork"), chosen.runs[0].spec
    findings = {
        run.spec.run_id: (run.arm, probe.measure(run.spec, Journal(run_dir(run.spec.run_id)))) for run in chosen.runs
    }
    run_id, step = forking.parse(first_spec.fork)
    name = f"fork-{run_id}-{step}"
    artifact_builder = ArtifactBuilder({}, home() / "reports", first_spec.scale, overrides)
    path = _write_rows(artifact_builder.folder, name, fork_tables.rows(findings))
    return artifact_builder.make(fork_tables.artifact(name, run_id, step, path), chosen.command)


def _write_rows(folder: Path, name: str, rows: pd.DataFrame) -> Path:
    """Write the rows that an artifact is built from, as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-rows.csv"
    write_atomic(path, rows.to_csv(index=False, lineterminator="\n", na_rep="nan", float_format="%.6g"))
    return path
