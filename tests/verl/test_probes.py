"""Probes under verl: their records are the local backend's, and nothing that is trained knows of them."""

from collections import defaultdict
from typing import Any

import pytest

from mcpo_cli.config.load import load
from mcpo_cli.runs.journal import Journal
from mcpo_cli.tasks.arithmetic import Arithmetic
from tests.verl.conftest import PANEL, PROBED, Resumed, Runs

pytestmark = [pytest.mark.verl, pytest.mark.slow]
STEPS, PROMPTS, G = 4, 6, 4
TRAINED = ("train/", "mastery/", "hinge/", "weight/", "sampling/")


def test_probes_under_verl(resumed: Resumed) -> None:
    """Beside the run with probes, which was killed and resumed: one without probes, and one of the local backend."""
    runs, probed = resumed.runs, Journal(resumed.folder)
    bare, local = (
        trained(runs, *others) for others in (("probe.every=0", "probe.panel_every=0"), (PANEL, "backend=local"))
    )
    neither_probes_nor_the_kill_changed_what_is_trained(probed, bare)
    what_was_mastered_is_rolled_again(probed)
    records_are_those_of_the_local_backend(probed, local)


def trained(runs: Runs, *others: str) -> Journal:
    result = runs("train", *PROBED, *others)
    assert result.returncode == 0, result.stdout
    return Journal(runs.home / "runs" / load([*PROBED, *others])[0].run_id)


def neither_probes_nor_the_kill_changed_what_is_trained(probed: Journal, bare: Journal) -> None:
    def of(journal: Journal, *groups: str) -> list[dict[str, float]]:
        rows = [row["metrics"] for row in journal.steps()]
        return [{name: value for name, value in row.items() if name.startswith(groups)} for row in rows]

    assert len(probed.steps()) == STEPS
    assert of(probed, *TRAINED) == of(bare, *TRAINED)
    # The sampler's log-probabilities are rounded as its batches happen to be.
    for mine, theirs in zip(of(probed, "sanity/"), of(bare, "sanity/"), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
    assert probed.groups() == bare.groups()
    assert probed.mini_batches() == bare.mini_batches()
    assert probed.eval() == bare.eval()
    # Otherwise the comparison says little.
    assert of(probed, *TRAINED)[0]["train/grad_norm"] > 0
    assert not bare.rerolls()


def what_was_mastered_is_rolled_again(journal: Journal) -> None:
    rolled = defaultdict[tuple[int, int], list[str]](list)
    for row in journal.rerolls():
        rolled[row["origin"], row["step"]].append(row["prompt"])
        assert 0 <= row["c"] <= row["n"] == G
    mastered = {
        step: [row["prompt"] for row in journal.groups() if row["step"] == step and row["p"] == 1]
        for step in (1, 2, 3, 4)
    }
    panel = [problem.text for problem in Arithmetic(max_ops=2).training(0, 0, PROMPTS)]
    cohorts = {(step, later): mastered[step] for step in mastered for later in (step, step + 1) if later <= STEPS}
    assert rolled == {key: prompts for key, prompts in cohorts.items() if prompts} | {(0, 1): panel, (0, 3): panel}
    # The attempt that was killed picked the cohort, the next one rolled it again.
    assert rolled[2, 3]
    for row in journal.steps():
        again = [each for each in journal.rerolls() if each["step"] == row["step"]]
        assert row["metrics"]["probe/rollouts"] == G * len(again)
        assert row["metrics"]["perf/seconds_probe"] > 0


def shape(rows: list[Any]) -> dict[str, type]:
    return {key: type(value) for row in rows for key, value in row.items()}


def of_mini_batches(journal: Journal) -> set[str]:
    return {name for row in journal.mini_batches() for name in row["sums"]}


def records_are_those_of_the_local_backend(verl: Journal, local: Journal) -> None:
    assert shape(verl.rerolls()) == shape(local.rerolls())
    assert shape(verl.groups()) == shape(local.groups())
    assert shape(verl.mini_batches()) == shape(local.mini_batches())
    # The local backend measures something there that verl's trainer has from elsewhere.
    assert of_mini_batches(verl) == of_mini_batches(local) - {"sanity/logp_difference"}
    names = {name for row in local.steps() for name in row["metrics"]}
    assert names <= {name for row in verl.steps() for name in row["metrics"]}
    assert len(verl.mini_batches()) == STEPS * 2
    # With the anchor that was rolled out the first gradient step of each global step feels nothing.
    first = [row["sums"] for row in verl.mini_batches() if row["mini_batch"] == 1]
    assert {sums["hinge/prompts_felt"][0] for sums in first} == {0}
    assert max(row["metrics"]["sanity/logp_difference"] for row in verl.steps()) < 1e-4
