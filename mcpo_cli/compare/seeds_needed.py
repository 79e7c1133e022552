"""How many seeds a difference takes, before training: `mcpo compare SUITE --plan`."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcpo_cli.compare import subjects
from mcpo_cli.compare.comparison import Question
from mcpo_cli.config import plan
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.config.reading import without_seeds
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import run_dir
from mcpo_cli.render.markup import Grid
from mcpo_cli.runs import attempts
from mcpo_cli.statistics import power, stats
from mcpo_cli.statistics.power import ALPHA, POWER

SEEDS = (3, 5, 6, 8, 10, 12, 20, 40)
"""Numbers of seeds for which `needed` says what they find."""
SPREAD = f"their spread takes {stats.LEAST} seeds or more"
TWO_ARMS = "mcpo compare method=dapo,mcpo seed=0,1,2 --plan"


def needed(words: Sequence[str], question: Question) -> dict[str, Any]:
    """For each model and arm, the smallest difference that each of SEEDS finds with probability POWER.

    It is in standard deviations; if `stats.LEAST` seeds of all arms are done and their differences vary, also in units
    of the metric, with the 80 % interval of the standard deviation that these seeds give; otherwise with the reason.
    words: see `subjects.plan_of`.

    Raises:
        ConfigError: no such suite, setting or run.
    """
    names, overrides = subjects.parted(words, "mcpo compare")
    suite = names[0] if names and plan.is_suite(names[0]) else ""
    smallest = plan.read(suite).smallest_effect if suite else plan.SMALLEST_EFFECT
    full_plan, question = subjects.plan_of(words, "mcpo compare"), replace(question, at=question.at or ("steps",))
    if len({run.arm for run in full_plan.runs}) < 2:
        raise ConfigError("a plan of seeds is about the difference of two arms; here is one", fix=TWO_ARMS)
    rows = subjects.headline_rows(_done(full_plan), suite, question)
    differences = [_names(row) | _spread(row["sd"], row["seeds"], smallest) for row in rows if not _lacks(row)]
    relative = {seeds: power.detectable_effect(1.0, seeds) for seeds in SEEDS}
    return {
        "suite": full_plan.suite,
        "trained_by": full_plan.command if suite or not names else "",
        "in_stages": shlex.join(["mcpo", "ablate", suite, *without_seeds(overrides), "--until", "decided"])
        if suite
        else "",
        "power": POWER,
        "alpha": ALPHA,
        "smallest_effect": smallest,
        "in_standard_deviations": relative,
        "differences": differences,
        "without_spread": [_names(row) | {"seeds": row["seeds"], "why": lack} for row in rows if (lack := _lacks(row))],
    }


def _names(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("regime", "at", "model", "arm")}


def _lacks(row: Mapping[str, Any]) -> str:
    """The reason why a difference of the headline has no spread over seeds; empty if it has one."""
    if row["seeds"] < stats.LEAST:
        return f"{row['seeds']} seeds are done in all arms; {SPREAD}"
    if row["sd"] <= stats.ROUNDING:
        sentence = f"all {row['seeds']} seeds have the same difference, {row['difference']:+.3f}"
        return f"{sentence}, so no spread can be estimated"
    return ""


def page(document: Mapping[str, Any]) -> Iterator[str | Grid]:
    """The differences that SEEDS find, and the number of seeds that the smallest effect of interest needs."""
    relative, differences, gaps = (document[key] for key in ("in_standard_deviations", "differences", "without_spread"))
    header = ["difference found by", *(f"{seeds} seeds" for seeds in SEEDS)]
    rows = [["in standard deviations", *(f"{value:.2f}" for value in relative.values())]]
    for row in differences:
        for end, label in (("sd", "sd"), ("sd_low", "80% low"), ("sd_high", "80% high")):
            name = f"{_label(row)}: {label} {row[end]:.3f}"
            rows.append([name, *(f"{row[end] * value:.3f}" for value in relative.values())])
    yield Grid("", header, rows, labels=len(header))
    for row in differences:
        low, high = (power.seeds_text(row[end]) for end in ("fewest", "most"))
        seeds = low if low == high else f"{low} to {high}"
        yield f"{_label(row)}: a difference of {document['smallest_effect']:g} takes {seeds} seeds"
    yield from (f"{_label(row)}: {row['why']}" for row in gaps)
    if not differences and not gaps:
        command = document["trained_by"]
        yield f"no seed is done in all arms; {SPREAD}{f': {command}' if command else ''}"


def legend(document: Mapping[str, Any]) -> str:
    """What the numbers of `page` mean, and how to train seeds in stages."""
    stages, command = ", ".join(map(str, power.STAGES)), document["in_stages"]
    in_stages = f" Seeds in stages of {stages} that stop at a verdict: {command}" if command else ""
    return (
        f"Differences that a paired t-test finds with probability {POWER:g} at level {ALPHA:g}. The standard deviation "
        f"is that of arm minus baseline over seeds.{in_stages}"
    )


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['arm']}, {row['model']}, {row['regime']}, equal {row['at']}"


def _spread(sd: float, seeds: int, smallest: float) -> dict[str, Any]:
    """The deviation with its interval, and the seeds that the smallest effect of interest needs at both ends."""
    low, high = power.sd_bounds(sd, seeds)
    fewest, most = power.seeds_range(smallest, sd, seeds)
    return {"sd": sd, "sd_low": low, "sd_high": high, "seeds": seeds, "fewest": fewest, "most": most}


def _done(full_plan: Plan) -> Plan:
    """The runs of every regime, model, base policy and seed for which all arms are done."""

    def pair(run: PlannedRun) -> tuple[str, str, int, int]:
        return run.spec.regime, run.spec.model.name, run.spec.seed_of_base, run.spec.seed

    gaps = {pair(run) for run in full_plan.runs if attempts.state(run_dir(run.spec.run_id), run.spec) != "done"}
    return replace(full_plan, runs=tuple(run for run in full_plan.runs if pair(run) not in gaps))
