"""Texts for MLflow's UI: names and descriptions of plans and runs."""

import re
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from mcpo_cli.config import arm_names
from mcpo_cli.config.plan import Plan, about
from mcpo_cli.redaction import redact

LONGEST = 120
"""Most characters of the list of arms in a plan's name."""
SERIES = "series"
"""The tag shared by runs that differ only in the seed."""
MOST_NOTE = 8000
"""Most characters of a description: MLflow cuts longer ones. A table that makes it longer is only in the artifacts."""
OURS = "<!-- mcpo writes this description; without this line it leaves it as it is -->"
"""The last line of a description that may be replaced by a newer one."""


def plan_name(plan: Plan) -> str:
    """For example `table1: DAPO against MCPO (toy, drift, 12 runs)`. Plans outside a suite list their arms as title."""
    title, _ = about(plan.suite)
    specs = [run.spec for run in plan.runs]
    arms = ", ".join(dict.fromkeys(run.arm for run in plan.runs))
    presets = dict.fromkeys([*(spec.scale for spec in specs), *(spec.regime for spec in specs)])
    runs = f"{len(specs)} run{'s' if len(specs) > 1 else ''}"
    return f"{plan.suite}: {title or textwrap.shorten(arms, LONGEST)} ({', '.join([*presets, runs])})"


def series(plan: Plan) -> dict[str, str]:
    """Run id -> name shared by the runs that differ only in their seeds: `MCPO toy-s`, `mcpo toy-s regime=drift`."""
    labels = [f"{run.arm} {run.spec.model.name}" for run in plan.runs]
    names = arm_names.names(labels, [run.spec for run in plan.runs], columns=())
    return {run.spec.run_id: name for run, name in zip(plan.runs, names, strict=True)}


def metric_part(name: str) -> str:
    """A name as one part of the name of a metric: `DAPO_w_o_filter`, `best_at_8`."""
    return re.sub(r"[^\w.-]+", "_", name.replace("@", "_at_"))


def headline_name(row: Mapping[Any, Any]) -> str:
    """The metric of a headline difference: `difference/<metric>/<equal>/<model>/<arm>`."""
    return "/".join(["difference", *(metric_part(row[key]) for key in ("metric", "at", "model", "arm"))])


def short(sentence: str) -> str:
    """A sentence of a comparison for a narrow column, without what the name of its run says: `MCPO: worse (-.074)`."""
    return re.sub(r" against [^:;]+(?=: )", "", sentence)


def plan_note(plan: Plan, charts: str, results: str = "") -> str:
    """The description of a plan's parent run: results if they are known, purpose, and command.

    charts: the address of the charts of its runs, relative to the UI's, which may listen at any port.
    """
    _, question = about(plan.suite)
    link = f"[Charts of these runs]({charts})"
    parts = [results, question, link, f"Start or continue it:\n\n```\n{redact(plan.command)}\n```", OURS]
    note = "\n\n".join(part for part in parts if part)
    return plan_note(plan, charts) if results and len(note) > MOST_NOTE else note


def contrasts(plan: Plan) -> dict[str, str]:
    """The settings in which the arms of a plan differ, each with its values: `DAPO: False; MCPO: True`."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    arms = dict.fromkeys(run.arm for run in plan.runs)
    for run in plan.runs:
        for key, value in run.spec.flat_identity().items():
            values[key][run.arm].add(str(value))
    texts = {key: {arm: ", ".join(sorted(by_arm[arm])) or "-" for arm in arms} for key, by_arm in values.items()}
    return {
        key: "; ".join(f"{arm}: {value}" for arm, value in by_arm.items())
        for key, by_arm in texts.items()
        if len(set(by_arm.values())) > 1
    }
