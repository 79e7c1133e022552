"""Figures beyond the paper's, from journals with numbers that can be computed by hand."""

import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mcpo_study.analysis.paper.figures import prompts
from scipy import stats

from mcpo_cli.analysis.figures import base
from mcpo_cli.analysis.figures.declare import Quantity, caption, lines, spread
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Product
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import run_dir
from mcpo_cli.methods.mcpo import drift_names
from mcpo_cli.report import artifacts
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import seal
from mcpo_cli.statistics import curves
from tests.fakes import has_hinge
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


def _one_seed(seed: int) -> Plan:
    return replace(_plan(), cells=tuple(cell for cell in _plan().cells if cell.spec.seed == seed))


def _write(spec: RunSpec, arm: str) -> None:
    """DAPO records like a run on a cluster: without resampled prompts and gradients."""
    attempt = Attempt(run_dir(spec.run_id), spec, 0)
    journal = attempt.journal
    for step, counts in ((0, BASE), (2, BASE), (3, dict.fromkeys(BASE, TRAINED[spec.seed % 2]))):
        journal.rows("eval", step, evaluation(step, counts, N))
    for step in (1, 2, 3):
        journal.rows("groups", step, [group(step, 0.5, "k2-3 0" if arm == "DAPO" else "fresh")])
        metrics = {"train/grad_norm": 1.0 + step, "weight/effective_sample": 10.0 * step + spec.seed}
        if has_hinge(spec):
            metrics |= {"hinge/prompts_felt": 0.5, "hinge/tokens_active": 0.2}
        journal.rows("mini_batches", step, [_mini_batch(spec, step, number) for number in (1, 2)])
        if arm != "DAPO":
            rolls = [reroll(step, prompt, counts[step - 1], n=4) for prompt, counts in PANEL[spec.seed % 2].items()]
            controls = [reroll(1, f"control {i}", c, origin=1, n=4) for i, c in enumerate(CONTROL[spec.seed % 2])]
            journal.rows("rerolls", step, [*rolls, *(controls if step == 1 else [])])
        journal.step({"step": step, "time": 0.0, "metrics": metrics})
    if arm != "DAPO":
        norms = [(0.25, 1.0 + i + spec.seed) for i in range(5)] + [(1.0, 0.5)]
        journal.rows("gradients", 1, [{"step": 1, "prompt": "", "p": p, "norm": norm} for p, norm in norms])
    attempt.end("done")


def _mini_batch(spec: RunSpec, step: int, number: int) -> dict[str, Any]:
    sums = {"train/policy_loss": [(0.1, 0.3)[number - 1], 1]}
    if has_hinge(spec):
        later = number - 1
        sums |= {"train/hinge_loss": [0.5 * later, 1], "hinge/prompts_felt": [later, 2]}
        sums |= {"hinge/tokens_active": [4 * later, 20]} | {name: [20, 0] for name in drift_names()}
    return {"step": step, "mini_batch": number, "sums": sums}


@pytest.fixture(scope="module")
def runs(module_home: Path) -> Runs:
    for cell in _plan().cells:
        _write(cell.spec, cell.arm)
    return Runs(_plan())


def _product(name: str, runs: Runs) -> Product:
    return artifacts.registry()[name].build({"table2": runs})


def _of(data: pd.DataFrame, **where: Any) -> pd.DataFrame:
    for column, value in where.items():
        data = data[data[column] == value]
    return data


def test_learning_curves_are_means_over_problems(runs: Runs) -> None:
    product = _product("learning-curves", runs)
    mine = _of(product.data, arm="MCPO", seed=0)
    assert _of(mine, tier="k2-3")["pass_at_1"].tolist() == pytest.approx([27 / 48, 27 / 48, 0.5])
    assert mine["problems"].unique().tolist() == [6]


def test_pass_at_k_is_unbiased_and_best_at_k_a_note(runs: Runs) -> None:
    product = _product("pass-at-k", runs)
    rows = _of(product.data, arm="DAPO", seed=0, tier="k7-8").set_index("k")
    assert rows.index.tolist() == list(range(1, 9))
    assert rows["pass_at_k"].tolist() == pytest.approx([1 - math.comb(4, k) / math.comb(8, k) for k in range(1, 9)])
    assert rows["best_at_k"].tolist() == pytest.approx([1 - 0.5**k for k in range(1, 9)])
    # Means of 1 - 1/256 and 1.
    assert any("0.998" in note and "1.000" in note for note in product.notes)


def test_difficulty_has_a_problem_in_each_bin(runs: Runs) -> None:
    product = _product("difficulty", runs)
    before = _of(product.data, arm="DAPO", seed=0, tier="k2-3", policy="base policy")
    assert before["solved"].tolist() == ["never", "up to 25%", "up to 50%", "up to 75%", "below 100%", "always"]
    assert before["share"].tolist() == pytest.approx([1 / 6] * 6)
    after = _of(product.data, arm="DAPO", tier="k2-3", policy="trained", solved="always")
    assert after["share"].tolist() == [0, 1]
    assert any(note.startswith("1 of 18 held-out problems") for note in product.notes)


def test_hinge_by_step_and_by_mini_batch(runs: Runs) -> None:
    product = _product("hinge", runs)
    assert product.data["arm"].unique().tolist() == ["MCPO", "w/o ReWeight"]
    mine = _of(product.data, arm="MCPO", seed=1)
    for over, quantity, shares in (
        ("global step", "prompts", [0.5] * 3),
        ("global step", "tokens", [0.2] * 3),
        ("mini-batch", "prompts", [0, 0.5]),
        ("mini-batch", "tokens", [0, 0.2]),
    ):
        assert _of(mine, over=over, quantity=quantity)["share"].tolist() == pytest.approx(shares)
    assert any("inactive in the first mini-batch of a step" in note for note in product.notes)


def test_gradient_norms_by_step_and_class(runs: Runs) -> None:
    product = _product("gradients", runs)
    assert _of(product.data, arm="DAPO", seed=0)["norm"].tolist() == [2, 3, 4]
    minority = _of(product.data, arm="MCPO", seed=1, prompt_class="minority").iloc[0]
    names = ("decile_1", "quartile_1", "median", "quartile_3", "decile_9", "prompts")
    assert [minority[name] for name in names] == pytest.approx([2.4, 3, 4, 5, 5.6, 5])
    assert any("50 minority, 10 mastered" in note for note in product.notes)


def test_trajectories_have_one_order_under_all_arms(runs: Runs) -> None:
    product = _product("trajectories", runs)
    assert product.data["seed"].unique().tolist() == [0]
    for _, rows in product.data.groupby("arm"):
        # Both are all correct at the first sampling; b is the harder one on average.
        assert dict(zip(rows["prompt"], rows["row"], strict=True)) == {"b": 0, "a": 1}
        assert rows[rows["prompt"] == "b"]["p"].tolist() == [1, 0.5, 1]


def test_a_prompt_that_the_panel_holds_twice_has_two_lines(mcpo_home: Path) -> None:
    plan = _one_seed(0)
    for cell in plan.cells:
        _write(cell.spec, cell.arm)
        path = mcpo_home / "runs" / cell.spec.run_id / "attempt_1" / "rerolls"
        for file in path.glob("*.jsonl"):
            file.write_text(file.read_text().replace('"prompt": "b"', '"prompt": "a"'))
        seal(path.parent)
    data = _of(_product("trajectories", Runs(plan)).data, arm="MCPO")
    assert data.pivot(index="row", columns="step", values="p").to_numpy().tolist() == [[1, 0.5, 1], [1, 1, 1]]


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


def test_survival_of_one_seed_is_the_probes_own(runs: Runs) -> None:
    alone = Runs(_one_seed(1))
    data = _of(_product("survival", alone).data, arm="MCPO").iloc[1:]
    (cell,) = [cell for cell in alone.cells if cell.arm == "MCPO"]
    table = pd.DataFrame(alone.finding("transitions", cell).tables["survival"])
    theirs = ["steps", "at_risk", "lost", "survival", "chance_at_least"]
    mine = ["steps", "at_risk", "lost", "survival", "chance"]
    assert data[mine].to_numpy() == pytest.approx(table.reindex(columns=theirs).to_numpy(), nan_ok=True)


@pytest.mark.slow
def test_the_band_of_survival_covers_where_seeds_differ() -> None:
    """200 figures of 5 seeds with own loss rates x 20 prompts: 95 % nominal; Greenwood's covers far less."""
    rng, covered, greenwood = np.random.default_rng(0), [], []
    rates = stats.beta(2, 6)
    true = float(rates.expect(lambda rate: (1 - rate) ** 3))
    for _ in range(200):
        rows = []
        for seed in range(5):
            lost_at = rng.geometric(rates.rvs(random_state=rng), size=20)
            at_risk = [(lost_at >= step).sum() for step in (1, 2, 3)]
            lost = [(lost_at == step).sum() for step in (1, 2, 3)]
            rows.append(pd.DataFrame({"run_id": str(seed), "steps": [1, 2, 3], "at_risk": at_risk, "lost": lost}))
        table = pd.concat(rows)
        last = [*prompts.pooled_survival(table[table["at_risk"] > 0], pd.Series([0.1]), 1)][-1]
        covered.append(last["low"] <= true <= last["high"])
        assert 0 <= last["low"] <= last["survival"] <= last["high"] <= 1
        curve = curves.survival(*prompts.spells(table[table["at_risk"] > 0]))
        greenwood.append(curve.low_T[-1] <= true <= curve.high_T[-1])
    assert abs(np.mean(covered) - 0.95) <= 3 * np.sqrt(0.05 * 0.95 / 200)
    assert np.mean(greenwood) < 0.8


def test_hard_prompts_gain_from_the_second_roll_on(runs: Runs) -> None:
    product = _product("hard-prompts", runs)
    hard = _of(product.data, arm="MCPO", group="at most 25% at the first roll")
    assert hard["accuracy"].tolist() == pytest.approx([0.125, 0.5, 0.75])
    assert _of(product.data, arm="MCPO", group="never right at the first roll")["accuracy"].tolist() == [0, 1, 1]


@pytest.mark.parametrize(("steps", "ticks"), [([1], [1]), ([1, 2], [1, 2]), ([0, 10, 20], [0, 5, 10, 15, 20])])
def test_an_axis_of_steps_has_integers_alone(steps: list[int], ticks: list[int]) -> None:
    data = pd.DataFrame([{"model": "toy-s", "arm": "a", "seed": 0, "base_seed": 0, "step": x, "y": 0.5} for x in steps])
    figure = base.grid(data, "arm", lines("y", "y"))
    figure.canvas.draw()
    (low, high), axis = figure.axes[0].get_xlim(), figure.axes[0].xaxis
    assert [place for place in axis.get_majorticklocs() if low <= place <= high] == ticks
    assert {label.get_text() for label in axis.get_majorticklabels()} >= {str(tick) for tick in ticks}


def test_many_panels_are_broken_into_rows_and_every_column_names_its_axis() -> None:
    arms = [f"arm {i}" for i in range(5)]
    data = pd.DataFrame([{"model": "toy-s", "arm": arm, "y": 1.0} for arm in arms])
    figure = base.grid(data, "arm", lambda axes, here: axes.set(xlabel="step", ylabel="y"))
    assert [axes.get_title() for axes in figure.axes] == arms
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "step", "step", "step"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["y", "", "", "y", ""]


def _curves_of(arms: int, **columns: object) -> pd.DataFrame:
    rows = [
        {"model": "toy-s", "arm": f"arm {arm}", "base_seed": 0, "seed": seed, "step": step, "y": float(seed), **columns}
        for arm in range(arms)
        for seed in (0, 1)
        for step in (0, 1)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("by", ["", "tier"])
@pytest.mark.parametrize("arms", [4, 6, 9])
def test_a_panel_has_at_most_four_arms_and_each_arm_one_look(arms: int, by: str) -> None:
    data, draw = _curves_of(arms, tier="k2-3"), lines("y", "y")
    figure = base.grid(data, by, draw) if by else base.panels(data, draw)
    drawn = [{str(line.get_label()): line.get_color() for line in axes.get_lines()} for axes in figure.axes]
    assert set().union(*drawn) == set(data["arm"])
    assert max(map(len, drawn)) <= 4
    assert all("arm 0" in shown for shown in drawn)
    looks = {(arm, color) for shown in drawn for arm, color in shown.items()}
    assert len(looks) == arms


def test_the_parts_of_a_panel_stand_side_by_side_with_one_y_axis() -> None:
    data = pd.concat([_curves_of(6, tier=tier).eval(f"y = y * {high}") for tier, high in (("k2", 1), ("k5", 2))])
    figure = base.grid(data, "tier", lines("y", "y"), sharey=False)
    titles = [[axes.get_title() for axes in figure.axes[row : row + 2]] for row in (0, 2)]
    assert titles == [["k2 (1 of 2)", "k2 (2 of 2)"], ["k5 (1 of 2)", "k5 (2 of 2)"]]
    first, second, third, fourth = (axes.get_ylim() for axes in figure.axes)
    assert (first, third) == (second, fourth)
    assert first != third
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == base.BAND
    panels = base.panels(data, lines("y", "y")).axes
    assert [axes.get_title() for axes in panels] == ["toy-s (1 of 2)", "toy-s (2 of 2)"]


def test_the_legend_says_what_a_band_is_and_only_where_there_is_one() -> None:
    for seeds, words in ((2, ["arm 0", base.BAND]), (1, ["arm 0"])):
        data = _curves_of(1)
        figure = base.panels(data[data["seed"] < seeds], lines("y", "y"))
        assert [text.get_text() for text in figure.legends[0].get_texts()] == words


def test_only_measured_points_have_a_marker() -> None:
    data = _curves_of(1)
    figure = base.panels(data.assign(measured=data["step"] == 1), lines("y", "y"))
    (line,) = figure.axes[0].get_lines()
    assert (line.get_marker(), line.get_markevery()) == ("P", [1])


def test_a_figure_fits_a_page_of_a_paper_and_its_letters_can_be_read() -> None:
    with base.drawing():
        axes = base.panels(_curves_of(6), lines("y", "y")).axes[0]
        assert axes.figure.get_figwidth() == 5.5
        assert {label.get_fontsize() for label in axes.get_xticklabels()} == {7}


def test_a_panel_without_rows_says_so() -> None:
    data = pd.DataFrame([{"model": "a", "arm": "x"}, {"model": "a", "arm": "y"}, {"model": "b", "arm": "x"}])
    figure = base.grid(data, "arm", lambda axes, here: None)
    assert [[text.get_text() for text in axes.texts] for axes in figure.axes] == [[], [], [], ["not recorded"]]


def test_arms_look_different_however_many_there_are() -> None:
    arms = [*base.LOOKS, *(f"arm {i}" for i in range(12))]
    found = base.looks(["MCPO", "DAPO", "GRPO", *arms[-12:]])
    assert len(set(found.values())) == 15
    assert base.looks(["MCPO", "arm 0"])["MCPO"] == found["MCPO"]


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
