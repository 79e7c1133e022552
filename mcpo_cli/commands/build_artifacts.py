"""Build artifacts by name, write them to files and print them; shared by `mcpo reproduce` and `mcpo report`."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcpo_cli.analysis import artifacts, moved, render, report_content
from mcpo_cli.analysis import report as report_files
from mcpo_cli.analysis.artifacts import Built, Workshop
from mcpo_cli.commands import console
from mcpo_cli.commands.publish import publish_artifacts
from mcpo_cli.config import load, plan
from mcpo_cli.config.plan import Plan
from mcpo_cli.home import home


def plans(names: Sequence[str], overrides: Sequence[str], command: str) -> dict[str, Plan]:
    """The plans of the suites that the artifacts `names` are made from, by suite.

    Raises:
        ConfigError: bad overrides.
    """
    return {suite: plan.from_suite(suite, overrides, command) for suite in artifacts.suites(names)}


def merged(plans: Mapping[str, Plan]) -> Plan:
    """All runs of several plans as one plan to show; shared runs appear once."""
    cells = {cell.spec.run_id: cell for one in reversed(list(plans.values())) for cell in one.cells}
    command = next((one.command for one in plans.values()), "")
    return Plan(" + ".join(plans), command, tuple(cells.values()))


def workshop(plans: Mapping[str, Plan], overrides: Sequence[str]) -> Workshop:
    """The workshop that builds the artifacts of these plans, in `reports/<scale>` of MCPO_HOME.

    The scale is that of the runs where all have the same, else the one that `overrides` choose.
    """
    scales = {cell.spec.scale for one in plans.values() for cell in one.cells}
    scale = scales.pop() if len(scales) == 1 else load.chosen("scale", overrides)
    return Workshop(plans, home() / "reports", scale, overrides)


def report(
    overrides: Sequence[str],
    *,
    as_json: bool,
    suites: Sequence[Mapping[str, Any]] = (),
    against: Path | None = None,
) -> None:
    """Build every artifact, and each diagnostic one whose runs are done; write the report and print what was built.

    suites: outcomes of the runs started for the report, for `--json`.
    against: folder of another report; what moved since is printed and stands in the new one.

    Raises:
        ConfigError: bad overrides, or `against` is no report of this scale; nothing is written.
        MissingCells: an artifact's runs are not done; the report is written and says so.
        McpoError: an artifact cannot be built although its runs are done; likewise.
    """
    command, names = "mcpo reproduce all", list(artifacts.registry())
    made = workshop(plans(names, overrides, command), overrides)
    if against:
        moved.check(against, made.folder, made.scale)
    console.talk(f"building {len(names)} tables and figures")
    content = report_content.gather(made, names)
    if against:
        content = replace(content, against=moved.between(against, made.folder, names, content.software))
    files = report_files.write(content, made.folder)
    document = {"suites": suites, "report": {**content.to_json(), "files": [str(path) for path in files]}}
    if not as_json:
        for piece in content.pieces:
            if piece.built:
                show(piece.built, whole=False)
            else:
                console.talk(f"{piece.name}: not built: {piece.why}; {piece.command}")
        if content.against:
            page = render.Page("Against another report", content.against.sentence, [content.against.grid()], [])
            console.print_text(render.text(page, console.width()))
        console.talk("\n".join(f"written: {path}" for path in files))
    publish(made.plans, {piece.name: piece.built for piece in content.pieces if piece.built}, files)
    if error := report_content.complaint(content, shlex.join([*command.split(), *overrides]), document):
        raise error
    if as_json:
        console.print_json(document)


def publish(plans: Mapping[str, Plan], built: Mapping[str, Built], report: Sequence[Path] = ()) -> None:
    """Log artifacts, and the report that contains them, to the parent runs of their suites in MLflow."""
    made: dict[str, list[Built]] = {}
    for name, one in built.items():
        for suite in artifacts.get(name).needs:
            made.setdefault(suite, []).append(one)
    publish_artifacts([(plans[suite], here) for suite, here in made.items()], report)


def publish_suite(plan: Plan, built: Sequence[Built]) -> None:
    """Log the artifacts of one plan to its parent run in MLflow."""
    publish_artifacts([(plan, built)])


def show(built: Built, *, whole: bool) -> None:
    """Print an artifact: all of it if `whole`, else its first sentence."""
    if whole:
        console.print_text(built.text(console.width()))
        console.talk("\n".join(f"written: {path}" for path in built.paths))
    else:
        console.print_text(f"{built.name}: {built.record['sentence']}")
