"""`mcpo compare SUITE --plan`: what difference N seeds can find, from the spread of the runs that are done."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcpo_cli.analysis import words
from mcpo_cli.analysis.comparison import Choice
from mcpo_cli.commands import compare_runs, console
from mcpo_cli.config import plan
from mcpo_cli.config.plan import Cell, Plan
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import run_dir
from mcpo_cli.runs import attempts
from mcpo_cli.statistics import power, sequential, stats
from mcpo_cli.statistics.power import ALPHA, POWER

SEEDS = (3, 5, 6, 8, 10, 12, 20, 40)


def show(suite: str, overrides: Sequence[str], choice: Choice, *, as_json: bool) -> None:
    """Print, for each model and arm, the smallest difference that each of SEEDS finds with probability POWER.

    Where at least `stats.LEAST` seeds of all arms are done, it is in units of the metric, with the 80 % interval that
    these seeds leave to the standard deviation; else in standard deviations.

    Raises:
        ConfigError: what is named is no suite, or bad overrides.
    """
    if not plan.is_suite(suite):
        raise ConfigError(
            f"--plan is about the seeds of a suite, and {suite} is none", fix="mcpo compare table1 --plan"
        )
    compare_runs.refuse_design(suite)
    about, whole = plan.read(suite), plan.from_suite(suite, overrides, f"mcpo ablate {suite}")
    choice = replace(compare_runs.chosen(suite, choice), at=choice.at or ("steps",))
    found = [
        {key: one[key] for key in ("regime", "at", "model", "arm")}
        | _reach(one["sd"], one["seeds"], about.smallest_effect)
        for one in compare_runs.headline(_done(whole), choice)
        if one["seeds"] >= stats.LEAST and one["sd"] > stats.ROUNDING
    ]
    relative = {seeds: power.detectable_effect(1.0, seeds) for seeds in SEEDS}
    document = {
        "suite": whole.suite,
        "power": POWER,
        "alpha": ALPHA,
        "smallest_effect": about.smallest_effect,
        "in_standard_deviations": relative,
        "differences": found,
    }
    if as_json:
        console.print_json(document)
        return
    header = ["difference found by", *(f"{seeds} seeds" for seeds in SEEDS)]
    rows = [["in standard deviations", *(f"{value:.2f}" for value in relative.values())]]
    for seen in found:
        for end, label in (("sd", "sd"), ("sd_low", "80% low"), ("sd_high", "80% high")):
            name = f"{_place(seen)}: {label} {seen[end]:.3f}"
            rows.append([name, *(f"{seen[end] * value:.3f}" for value in relative.values())])
    console.print_table(header, rows)
    for seen in found:
        low, high = (words.count(seen[end]) for end in ("fewest", "most"))
        console.print_text(f"{_place(seen)}: a difference of {about.smallest_effect:g} takes {low} to {high} seeds")
    stages = ", ".join(map(str, sequential.STAGES))
    console.talk(
        f"Differences that a paired t-test finds with probability {POWER:g} at level {ALPHA:g}. The standard deviation "
        f"is that of arm minus baseline over seeds{'' if found else f'; fewer than {stats.LEAST} seeds are done'}. "
        f"Seeds in stages of {stages} that stop at a verdict: mcpo ablate {suite} --until decided"
    )


def _place(seen: Mapping[str, Any]) -> str:
    return f"{seen['arm']}, {seen['model']}, {seen['regime']}, equal {seen['at']}"


def _reach(sd: float, seeds: int, smallest: float) -> dict[str, Any]:
    """The deviation with its interval, and the seeds that the smallest effect of interest takes at both ends."""
    low, high = power.sd_bounds(sd, seeds)
    fewest, most = power.seeds_range(smallest, sd, seeds)
    return {"sd": sd, "sd_low": low, "sd_high": high, "seeds": seeds, "fewest": fewest, "most": most}


def _done(whole: Plan) -> Plan:
    """The runs of every regime, model, base policy and seed for which all arms are done."""

    def place(cell: Cell) -> tuple[str, str, int, int]:
        return cell.spec.regime, cell.spec.model.name, cell.spec.seed_of_base, cell.spec.seed

    lacking = {place(cell) for cell in whole.cells if attempts.state(run_dir(cell.spec.run_id), cell.spec) != "done"}
    return replace(whole, cells=tuple(cell for cell in whole.cells if place(cell) not in lacking))
