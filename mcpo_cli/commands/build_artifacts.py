"""Build artifacts by name, to files and to the terminal: shared by `mcpo reproduce` and `mcpo report`."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpo_cli.analysis import artifacts, report_content
from mcpo_cli.analysis import report as report_files
from mcpo_cli.analysis.artifacts import Built, Workshop
from mcpo_cli.commands import console, publish_artifacts
from mcpo_cli.config import load, plan
from mcpo_cli.config.plan import Plan
from mcpo_cli.home import home


def plans(names: Sequence[str], overrides: Sequence[str], command: str) -> dict[str, Plan]:
    """The plan of each suite that the artifacts `names` are made from, by suite.

    Raises:
        ConfigError: bad overrides.
    """
    return {suite: plan.from_suite(suite, overrides, command) for suite in artifacts.suites(names)}


def merged(found: Mapping[str, Plan]) -> Plan:
    """All runs of several plans as one, to be shown; a run that two of them share stands there once."""
    cells = {cell.spec.run_id: cell for one in reversed(list(found.values())) for cell in one.cells}
    command = next((one.command for one in found.values()), "")
    return Plan(" + ".join(found), command, tuple(cells.values()))


def workshop(found: Mapping[str, Plan], overrides: Sequence[str]) -> Workshop:
    """Where the artifacts of these plans are built: `reports/<scale>` of MCPO_HOME."""
    return Workshop(found, home() / "reports", load.chosen("scale", overrides), overrides)


def report(overrides: Sequence[str], *, as_json: bool, suites: Sequence[Mapping[str, Any]] = ()) -> None:
    """Build every artifact, and each diagnostic one whose runs are done, write the report and print what there is.

    suites: what became of the runs that were started for it, for `--json`.

    Raises:
        ConfigError: bad overrides; nothing is written.
        MissingCells: runs of an artifact are not done: the report is written and says so.
        McpoError: an artifact cannot be built of runs that are done; likewise.
    """
    command, names = "mcpo reproduce all", list(artifacts.registry())
    made = workshop(plans(names, overrides, command), overrides)
    console.talk(f"building {len(names)} tables and figures")
    content = report_content.gather(made, names)
    files = report_files.write(content, made.folder)
    document = {"suites": suites, "report": {**content.to_json(), "files": [str(path) for path in files]}}
    if not as_json:
        for piece in content.pieces:
            if piece.built:
                show(piece.built, whole=False)
            else:
                console.talk(f"{piece.name}: not built: {piece.why}; {piece.command}")
        console.talk("\n".join(f"written: {path}" for path in files))
    publish(made.plans, {piece.name: piece.built for piece in content.pieces if piece.built}, files)
    if error := report_content.complaint(content, shlex.join([*command.split(), *overrides]), document):
        raise error
    if as_json:
        console.print_json(document)


def publish(found: Mapping[str, Plan], built: Mapping[str, Built], report: Sequence[Path] = ()) -> None:
    """Bring artifacts, and the report that they are in, to the parent runs of the suites that they are made from."""
    files: dict[str, list[Path]] = {}
    for name, one in built.items():
        for suite in artifacts.get(name).needs:
            files.setdefault(suite, [*report]).extend([*one.paths, one.folder / f"{one.name}.json"])
    publish_artifacts.publish(found, files)


def show(built: Built, *, whole: bool) -> None:
    """Print what was built: the whole page, or its first sentence where there are many."""
    if whole:
        console.print_text(built.text(console.width()))
        console.talk("\n".join(f"written: {path}" for path in built.paths))
    else:
        console.print_text(f"{built.name}: {built.record['sentence']}")
