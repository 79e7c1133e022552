"""Measures the branch points of a trunk run, each once, and returns the measurements as rows for analysis.

`runs/<trunk>/branches/step_<s>_<key>/` holds one point: its attempts, as a run's folder does. A killed measurement is
repeated from the same state; a completed one never is.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from mcpo_cli.config.branching import Trunk
from mcpo_cli.errors import ConfigError
from mcpo_cli.records import BranchRow
from mcpo_cli.runs import begin
from mcpo_cli.runs.journal import Journal


def folder(trunk: Trunk, run_dir: Path, step: int) -> Path:
    """The folder of the measurements at the trunk's state after `step`."""
    return run_dir / "branches" / f"step_{step}_{trunk.key}"


def is_measured(trunk: Trunk, run_dir: Path, step: int) -> bool:
    """True if the point has been measured."""
    return begin.is_done(folder(trunk, run_dir, step))


def measure(trunk: Trunk, run_dir: Path, step: int) -> None:
    """Measure one point, unless that has been done.

    Raises:
        ConfigError: the trunk kept no checkpoint of the step.
    """
    from mcpo_cli.backends.local import branching as engine

    if not is_measured(trunk, run_dir, step) and step not in begin.kept(run_dir):
        raise ConfigError(
            f"{trunk.spec.run_id} is done and has kept no state of step {step}, which this study branches from",
            fix=f"rm -r {run_dir}  (then the same command trains it again)",
        )
    point = folder(trunk, run_dir, step)
    begin.record_once(point, trunk.spec, lambda attempt: engine.branch(trunk, attempt, run_dir, step))


def rows(trunk: Trunk, run_dir: Path) -> Iterator[dict[str, Any]]:
    """One row per point, arm, cohort and tier: means over prompts, with the settings that name the trunk run.

    Columns: run_id, model, base_seed, seed, step, arm, cohort, tier, batch (prompts of the batch), prompts, rollouts,
    before (accuracy of the rollouts before the step), change (the estimate of its change by the step), error (its
    standard error over prompts; NaN for one prompt), sampled_change (the same only from counts before and after),
    balance (0 in expectation), drift (mean |difference of log p| per token, nats).
    """
    spec = trunk.spec
    about = {name: spec.about[name] for name in ("model", "base_seed", "seed")}
    for step in trunk.at:
        groups: dict[tuple[str, str, str], list[BranchRow]] = defaultdict(list)
        for row in cast("list[BranchRow]", Journal(folder(trunk, run_dir, step)).rows("branches")):
            groups[row["arm"], row["cohort"], row["tier"]].append(row)
        for (arm, cohort, tier), members in groups.items():
            names = {"step": step + 1, "arm": arm, "cohort": cohort, "tier": tier, "batch": spec.train.prompts}
            yield {"run_id": spec.run_id, **about, **names, **_means(members)}


def _means(members: Sequence[BranchRow]) -> dict[str, float]:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    change = [row["change"] for row in members]
    P, centre = len(members), mean(change)
    spread = sum((value - centre) ** 2 for value in change) / (P - 1) if P > 1 else float("nan")
    return {
        "prompts": P,
        "rollouts": sum(row["n"] for row in members),
        "before": mean([row["c"] / row["n"] for row in members]),
        "change": centre,
        "error": (spread / P) ** 0.5,
        "sampled_change": mean([(row["c_after"] - row["c"]) / row["n"] for row in members]),
        "balance": mean([row["balance"] for row in members]),
        "drift": mean([row["drift"] for row in members]),
    }
