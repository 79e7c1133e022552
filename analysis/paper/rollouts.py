"""Sampled rollouts of each arm: the correct and the incorrect responses to a prompt, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import pandas as pd

from mcpo_cli.config.plan import PlannedRun
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.markup import Grid
from mcpo_cli.render.product import Artifact, Product
from mcpo_cli.runs import rollouts
from mcpo_cli.runs.rollouts import KeptGroup

from .sections import SAMPLES

SUITE = "table1"
TITLE = "Sampled rollouts"
GROUPS = 2
"""Prompt groups of each arm and model."""
MOST = 3
"""Distinct responses shown on either side; a last line counts the others."""
HEADER = ("arm", "model", "seed", "step", "prompt", "gold", "correct", "incorrect")
NOTES = (
    "The newest prompt groups with correct and with incorrect responses, of the first run of each arm and model with "
    "any. Equal responses are counted; a long one lacks its middle.",
    "Runs keep the rollouts of a few prompts at each evaluated step (compute.sample_groups). All of them, by step, "
    "accuracy, tier or text: mcpo runs samples RUN_ID.",
)


def build(data: Mapping[str, Runs]) -> Product:
    """One row per rollout that is shown."""
    runs = data[SUITE]
    groups = list(_shown(runs))
    rows = [
        {**dict(zip(HEADER, _cells(run, group), strict=False)), "verdict": verdict, "response": response}
        for run, group in groups
        for verdict, responses in (("right", group.right), ("wrong", group.wrong))
        for response in responses
    ]
    frame = pd.DataFrame(rows, columns=[*HEADER[:6], "verdict", "response"])
    lines = [[*_cells(run, group), _side(group.right), _side(group.wrong)] for run, group in groups]
    grids = [Grid("Correct and incorrect responses", HEADER, lines, labels=len(HEADER))] if lines else []
    return Product(TITLE, _sentence(frame, len(groups)), frame, grids, NOTES)


def _sentence(frame: pd.DataFrame, groups: int) -> str:
    if frame.empty:
        return "No run kept rollouts of a prompt with correct and with incorrect responses."
    right = (frame["verdict"] == "right").sum()
    return f"{len(frame)} rollouts of {groups} prompts, {right} of them correct."


def _shown(runs: Runs) -> Iterator[tuple[PlannedRun, KeptGroup]]:
    keys = set()
    for run in runs.planned:
        if (key := (run.arm, run.spec.model.name)) in keys:
            continue
        mixed = (group for group in rollouts.groups(runs.journal(run)) if group.right and group.wrong)
        if groups := list(islice(mixed, GROUPS)):
            keys.add(key)
            yield from ((run, group) for group in groups)


def _cells(run: PlannedRun, group: KeptGroup) -> list[str]:
    return [run.arm, run.spec.model.name, str(run.spec.seed), str(group.step), group.prompt, group.gold]


def _side(responses: Sequence[str]) -> str:
    """The most frequent responses, one per line."""
    counted = rollouts.counted(responses)
    lines = [f"{count} x {' '.join(response.split())}" for count, response in counted[:MOST]]
    return "\n".join([*lines, f"and {len(counted) - MOST} more"] if len(counted) > MOST else lines)


ARTIFACT = Artifact("rollouts", TITLE, SAMPLES, (SUITE,), build)
