"""Figures beyond the paper's, from journals with numbers that can be computed by hand."""

import functools
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mcpo_study.analysis.paper.figures.declare import Quantity, caption, spread

from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render.product import Product
from mcpo_cli.report import artifacts
from mcpo_cli.runs.attempts import Attempt
from tests.rows import evaluation, group, reroll

N = 8
BASE = {"k2-3": [0, 2, 4, 6, 7, 8], "k5-6": [8, 8, 8, 0, 0, 0], "k7-8": [0, 0, 0, 0, 0, 0]}
"""Number of correct samples of 8 of each problem under the base policy."""
TRAINED = {0: [4, 4, 4, 4, 4, 4], 1: [8, 8, 8, 8, 8, 8]}
"""The same by seed, after training, in every tier."""
PANEL = {0: {"a": [4, 4, 4], "b": [4, 2, 4]}, 1: {"a": [4, 4, 1], "b": [0, 4, 4], "c": [1, 0, 2]}}
"""By seed and prompt: the correct ones of 4 rollouts at steps 1, 2, 3."""
CONTROL = {0: [4, 4, 4, 3], 1: [4, 2]}
"""By seed: correct rollouts of mastered prompts, resampled under the same policy at step 1."""


@functools.cache
def _plan() -> Plan:
    return from_suite("table2", ["scale=smoke", "seed=0,1", "probe.panel_every=1"], "mcpo reproduce")


def _write(spec: RunSpec, arm: str) -> None:
    """DAPO records like a run on a cluster: without resampled prompts and gradients."""
    attempt = Attempt(run_dir(spec.run_id), spec, 0)
    journal = attempt.journal
    for step, counts in ((0, BASE), (2, BASE), (3, dict.fromkeys(BASE, TRAINED[spec.seed % 2]))):
        journal.rows("eval", step, evaluation(step, counts, N))
    for step in (1, 2, 3):
        journal.rows("groups", step, [group(step, 0.5, "k2-3 0" if arm == "DAPO" else "fresh")])
        if arm != "DAPO":
            rolls = [reroll(step, prompt, counts[step - 1], n=4) for prompt, counts in PANEL[spec.seed % 2].items()]
            controls = [reroll(1, f"control {i}", c, origin=1, n=4) for i, c in enumerate(CONTROL[spec.seed % 2])]
            journal.rows("rerolls", step, [*rolls, *(controls if step == 1 else [])])
        journal.step({"step": step, "time": 0.0, "metrics": {}})
    attempt.end("done")


@pytest.fixture(scope="module")
def runs(module_home: Path) -> Runs:
    for run in _plan().runs:
        _write(run.spec, run.arm)
    return Runs(_plan())


def _product(name: str, runs: Runs) -> Product:
    return artifacts.registry()[name].build({"table2": runs})


def _of(data: pd.DataFrame, **where: Any) -> pd.DataFrame:
    for column, value in where.items():
        data = data[data[column] == value]
    return data


def test_pass_at_k_is_unbiased_and_best_at_k_a_note(runs: Runs) -> None:
    product = _product("pass-at-k", runs)
    rows = _of(product.data, arm="DAPO", seed=0, tier="k7-8").set_index("k")
    assert rows.index.tolist() == list(range(1, 9))
    assert rows["pass_at_k"].tolist() == pytest.approx([1 - math.comb(4, k) / math.comb(8, k) for k in range(1, 9)])
    assert rows["best_at_k"].tolist() == pytest.approx([1 - 0.5**k for k in range(1, 9)])
    # Means of 1 - 1/256 and 1.
    assert any("0.998" in note and "1.000" in note for note in product.notes)


def test_transitions_pool_the_pairs_of_all_seeds(runs: Runs) -> None:
    product = _product("transitions", runs)
    rows = _of(product.data, arm="MCPO", before="mastered", after="mastered")
    assert (rows["pairs"].tolist(), rows["share"].tolist()) == ([3, 3], pytest.approx([2 / 3, 2 / 3]))
    panel = product.figure.axes[0]
    assert panel.get_title() == "MCPO"
    shown = [text.get_text() for text in panel.texts]
    # All wrong to minority or mastered, minority to all wrong or mastered, none from majority, mastered 4 of 6.
    assert " ".join(shown[:12]) == "0.00 0.50 0.00 0.50 0.50 0.00 0.00 0.50 0.00 0.33 0.00 0.67"
    assert shown[12:] == ["2", "2", "0", "6", "pairs"]


def test_survival_pools_the_prompts_of_all_seeds(runs: Runs) -> None:
    """Spells: 2 steps and on, lost after 1; lost after 2, 1 step and on."""
    product = _product("survival", runs)
    rows = _of(product.data, arm="MCPO")
    assert rows[["steps", "at_risk", "lost"]].to_numpy().tolist() == [[0, 4, 0], [1, 4, 1], [2, 2, 1]]
    assert rows["survival"].tolist() == pytest.approx([1, 3 / 4, 3 / 8])
    # One of 4 and one of 2 controls are lost.
    assert rows["chance"].tolist() == pytest.approx([1, (3 / 4 + 1 / 2) / 2, (9 / 16 + 1 / 4) / 2])
    # Two seeds are too few for an interval.
    assert rows[["low", "high"]].isna().to_numpy().all()


def test_spread_of_seeds() -> None:
    assert spread([41.0, 43.0, math.nan], " %") == "42.0 % (41.0 to 43.0)"
    assert spread([0.25], digits=2) == "0.25"
    assert spread([math.nan]) == "not measured"


def test_a_caption_says_what_its_numbers_are_and_omits_arms_without_any() -> None:
    index = pd.MultiIndex.from_product(
        [["a", "b"], ["toy-s"], [0], [0, 1]], names=["arm", "model", "base_seed", "seed"]
    )
    score = pd.Series([0.1, 0.3, math.nan, math.nan], index)
    words = pd.Series(["much", "little"], pd.Index(["a", "b"], name="arm"))
    assert (
        caption("Score", Quantity("", score)) == "Score (mean and range of 2 runs): a (toy-s) 0.200 (0.100 to 0.300)."
    )
    assert caption("It", Quantity("x", words), Quantity("y", words)) == "It x and y: a much, much; b little, little."
    assert caption("Score", Quantity("", score[2:])).endswith(": not measured.")
