"""Train the trunk runs of a branch study, measure its points, and build its table; called by `mcpo branch`."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from mcpo_cli.analysis import branching as tables
from mcpo_cli.analysis.artifacts import Built, Workshop
from mcpo_cli.backends.local import checkpoint
from mcpo_cli.commands import console
from mcpo_cli.commands.start_runs import run_plan
from mcpo_cli.config import branching, load
from mcpo_cli.config.branching import Study, Trunk
from mcpo_cli.home import home, run_dir
from mcpo_cli.probes import branches
from mcpo_cli.runs.journal import Journal, write_atomic


def measure(study: str, trunk: Trunk, command: str) -> None:
    """Train one trunk run and measure its points, as far as that has not been done; then drop states no longer needed.

    Raises:
        RunFailed: the trunk run failed. ConfigError: see `branches.measure`.
    """
    folder = run_dir(trunk.spec.run_id)
    left = [step for step in trunk.at if not branches.is_measured(trunk, folder, step)]
    if not left:
        return
    run_plan(branching.plan(study, [trunk], command))
    for step in left:
        console.talk(f"{trunk.spec.run_id}: {len(trunk.arms)} arms take global step {step + 1}")
        branches.measure(trunk, folder, step)
    checkpoint.prune(Journal(folder).attempts()[-1], trunk.kept_after)


def build(study: str, content: Study, trunks: Sequence[Trunk], overrides: Sequence[str], command: str) -> Built:
    """Write the rows of all points to `reports/<scale>/branch-<study>-rows.csv`; build table and figure from them."""
    name, scale = f"branch-{load.stem(study)}", trunks[0].spec.scale
    rows = [row for trunk in trunks for row in branches.rows(trunk, run_dir(trunk.spec.run_id))]
    workshop = Workshop({}, home() / "reports", scale, overrides)
    workshop.folder.mkdir(parents=True, exist_ok=True)
    path = workshop.folder / f"{name}-rows.csv"
    write_atomic(path, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n", na_rep="nan", float_format="%.6g"))
    return workshop.make(tables.artifact(name, content.title or name, content.curve, path), command)


def points(trunks: Sequence[Trunk]) -> list[dict[str, Any]]:
    """Where the records of each point are."""
    return [
        {
            "run_id": trunk.spec.run_id,
            "step": step,
            "records": str(branches.folder(trunk, run_dir(trunk.spec.run_id), step)),
        }
        for trunk in trunks
        for step in trunk.at
    ]
