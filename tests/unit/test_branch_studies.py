"""Files of branch studies, their trunks and arms, and the statistics of their table, by hand."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import yaml

from mcpo_cli.config import branching
from mcpo_cli.config.branching import Study
from mcpo_cli.config.claims import Claim
from mcpo_cli.report import branching as tables
from mcpo_cli.report.branching import difference_from_curve
from mcpo_cli.statistics import stats
from tests.errors import refused

TRUNK = ["method=dapo", "method.dynamic_sampling=false", "train.steps=6", "train.lr=8e-4"]
ARMS = {"trunk": [], "hinge": ["method=mcpo", "method.reweight=false"], "half": ["train.lr=4e-4"]}


def study(**changes: Any) -> Study:
    return Study(**{"trunk": tuple(TRUNK), "at": (2, 6), "arms": ARMS, **changes})


def written(folder: Path, **changes: Any) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"trunk": TRUNK, "at": [2, 6], "arms": ARMS, **changes}, sort_keys=False))
    return str(path)


def test_arms_are_the_trunk_but_for_their_step() -> None:
    (one,) = branching.trunks(study(), ["seed=3"])
    assert one.spec.compute.checkpoint_every == 2
    assert one.spec.compute.checkpoints == 4, "steps 0, 2, 4 and 6"
    assert one.arms["trunk"].run_id == one.spec.run_id, "what decides when states are saved is no part of the identity"
    assert one.arms["hinge"].method.name == "mcpo"
    assert (one.arms["half"].train.lr, one.arms["half"].seed, one.spec.train.lr) == (4e-4, 3, 8e-4)


def test_the_key_of_a_point_depends_on_arms_and_sizes() -> None:
    keys = {
        branching.trunks(changed, [])[0].key
        for changed in (
            study(),
            study(arms={"trunk": ()}),
            study(arms=dict(reversed(ARMS.items()))),
            study(sizes=branching.Sizes(controls=33)),
        )
    }
    assert len(keys) == 4
    assert branching.trunks(study(title="Other words"), [])[0].key in keys


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"at": (6, 2)}, "at: [6, 2]"),
        ({"arms": {}}, "arms: "),
        ({"curve": ("hinges",)}, "'hinge'"),
        ({"at": (2, 7)}, "at: 7 "),
        ({"trunk": ("method=dapo",)}, "leaves mastered prompts out"),
        ({"trunk": (*TRUNK, "train.temperature=0.7")}, "train.temperature=0.7"),
        ({"arms": {"longer": ("train.max_response=30",)}}, "'longer'"),
        ({"arms": {"filter": ("method.dynamic_sampling=true",)}}, "'filter'"),
        ({"arms": {"anchor": ("method=mcpo", "method.anchor=previous_step")}}, "'anchor'"),
        ({"sweep": {"model": ("toy-s", "toy-m")}}, "one model"),
        ({"trunk": (*TRUNK, "backend=verl", "model=qwen3-0.6b", "scale=one-gpu")}, "backend=verl"),
    ],
)
def test_a_study_that_cannot_be_meant(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    path = written(tmp_path, **json.loads(json.dumps(changes)))
    with refused("bad_input", named) as caught:
        list(map(partial(branching.trunks, overrides=[]), map(branching.read, [path])))
    assert caught.value.fix


def test_the_shipped_studies_are_valid() -> None:
    for name in branching.studies():
        content = branching.read(name)
        assert all(len(trunk.arms) == len(content.arms) for trunk in branching.trunks(content, ["seed=0"]))


def test_a_study_without_arms_or_steps_names_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("trunk: [method=dapo]\n")
    with refused("bad_input", "at, arms must be given"):
        branching.read(str(path))


GIVEN = {
    "full": [(0.04, 0.08), (0.06, 0.12), (0.05, 0.09), (0.05, 0.11)],
    "half": [(0.02, 0.04), (0.02, 0.06), (0.01, 0.05), (0.03, 0.05)],
    "hinge": [(0.01, 0.06), (0.03, 0.08), (0.03, 0.07), (0.01, 0.07)],
}
"""Arm -> what is lost and gained at two points of each of two trunks."""


def rows(given: dict[str, list[tuple[float, float]]] = GIVEN, points: int = 2) -> pd.DataFrame:
    """Arms with given losses and gains at each point of each trunk."""
    found = []
    for arm, values in given.items():
        for place, (lost, gained) in enumerate(values):
            seed, point = divmod(place, points)
            about = {"run_id": f"run{seed}", "model": "m", "base_seed": 0, "seed": seed}
            about |= {"step": 1 + point, "arm": arm, "batch": 8, "drift": 0.01}
            prompts = 1 + 2 * point
            found.append(about | {"cohort": "mastered", "tier": "", "prompts": prompts, "before": 0.9, "change": -lost})
            found += [
                about | {"cohort": "held_out", "tier": tier, "prompts": 4, "before": 0.5, "change": gained + shift}
                for tier, shift in (("easy", -0.01), ("hard", 0.01))
            ]
    return pd.DataFrame(found)


def test_outcomes_are_means_of_a_trunks_points() -> None:
    full, half, hinge = tables.outcomes(rows())
    assert [one.arm for one in (full, half, hinge)] == ["full", "half", "hinge"]
    # Mastered prompts count equally: the second point has three of the four.
    assert full.lost_S == pytest.approx([0.055, 0.05])
    assert half.lost_S == pytest.approx([0.02, 0.025])
    assert hinge.gained_S == pytest.approx([0.07, 0.07])


def test_the_raw_drop_is_shared_between_selection_and_the_step() -> None:
    selected_S, step_S = tables.selection(rows(), "full")
    # Prompts were correct in all rollouts; 10 points are lost before the step, 5.5 and 5 by the step.
    assert selected_S == pytest.approx([0.1, 0.1])
    assert step_S == pytest.approx([0.055, 0.05])


def test_the_table_names_what_was_lost_gained_and_lost_at_equal_gain() -> None:
    product = tables.product(study(title="A study", curve=("half", "full")), rows())
    row = product.data.set_index("arm").loc["hinge"]
    assert row["lost"] == pytest.approx(0.02)
    assert row["against_first"] == pytest.approx(0.02 - 0.0525)
    # At a gain of .07, two fifths of the way from half (.05) to full (.10), the curve loses .0225 + .4 (.0525 - .0225).
    # Both pseudo-values average to the difference, as every run gains the same.
    assert row["equal_gain"] == pytest.approx(0.02 - 0.0345)
    assert np.isnan(row["equal_gain_p"]), "two runs give no test"
    # At a loss of .02, 8 ninths of the way from no step to half (.0225), the curve gains 8 ninths of .05.
    assert row["equal_loss"] == pytest.approx(0.07 - 0.05 * 8 / 9, abs=1e-3)
    assert product.figure is not None
    assert "selection explains" in product.sentence
    assert any("25% of their prompts were mastered (8 of 32)" in note for note in product.notes)


def test_nothing_is_extrapolated() -> None:
    gain_SC, cost_SC = np.array([[0.1, 0.2], [0.1, 0.2]]), np.array([[0.01, 0.03], [0.01, 0.03]])
    beyond = np.array([0.3, 0.3])
    assert difference_from_curve(beyond, np.array([0.02, 0.02]), gain_SC, cost_SC) is None
    assert difference_from_curve(np.array([0.1, 0.1]), np.array([0.0, 0.0]), gain_SC[:, ::-1], cost_SC) is None
    with pytest.raises(ValueError, match="two runs"):
        difference_from_curve(beyond[:1], beyond[:1], gain_SC[:1], cost_SC[:1])


def test_a_linear_curve_gives_the_paired_difference_from_the_line() -> None:
    rng = np.random.default_rng(0)
    gain_S = rng.uniform(0.05, 0.15, 6)
    curve_SC = np.linspace(0.05, 0.3, 4) + np.zeros((6, 1))
    cost_S = 0.4 * gain_S + rng.normal(0, 0.01, 6)
    values = difference_from_curve(gain_S, cost_S, curve_SC, 0.4 * curve_SC)
    assert values is not None
    found = stats.paired_t(values)
    difference = cost_S - 0.4 * gain_S
    assert found.mean == pytest.approx(difference.mean())
    assert found.sd == pytest.approx(difference.std(ddof=1))


def hypothesis(*arguments: Any, **more: Any) -> Claim:
    name, claim, *rest = arguments
    return Claim(name, claim, "", *rest, decide="holm", **more)


def test_hypotheses_are_judged_as_one_family() -> None:
    """Four runs with given values: p is Student's, and Holm's method multiplies the smaller by two."""
    lost = {"full": [0.05, 0.06, 0.05, 0.06], "hinge": [0.03, 0.03, 0.02, 0.04]}
    gained = {"full": [0.08, 0.09, 0.10, 0.09], "hinge": [0.08, 0.09, 0.11, 0.08]}
    given = rows({arm: list(zip(lost[arm], gained[arm], strict=True)) for arm in lost}, points=1)
    tests = (
        hypothesis("H1", "less is lost", "lost", "hinge", "less", baseline="full"),
        hypothesis("H2", "as much is gained", "gained", "hinge", "within", baseline="full", margin=0.03),
        hypothesis("H3", "selection is less than the step", "selection minus step", "full", "less"),
    )
    less, within, selected = tables.tested(tests, given, ())
    p_less = scipy.stats.ttest_rel(lost["hinge"], lost["full"]).pvalue
    assert (less.verdict, less.effect.mean) == ("supported", pytest.approx(-0.025))
    assert less.p_values.p == pytest.approx(p_less)
    assert within.effect.mean == pytest.approx(0)
    assert (selected.verdict, selected.effect.mean) == ("contradicted", pytest.approx(0.1 - 0.055))
    p_ordered = sorted([less.p_values.p, within.p_values.p, selected.p_values.p])
    assert selected.adjusted.p == pytest.approx(3 * p_ordered[0])
    shown = tables.product(study(hypotheses=tests), given)
    claims = [grid for grid in shown.grids if grid.title == "What is tested"]
    assert [list(row) for grid in claims for row in grid.rows] == [[one.id, one.claim] for one in tests]


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        ({"arm": "hingee"}, "unknown_name", ["'hingee'", "'hinge'"]),
        ({"statistic": "lots"}, "unknown_name", ["'lots'", "'lost'"]),
        ({"suite": "table1"}, "bad_input", ["no suite"]),
    ],
)
def test_a_hypothesis_that_its_study_cannot_test_is_refused(
    wrong: dict[str, str], code: str, named: list[str], tmp_path: Path
) -> None:
    entry = {"id": "H1", "claim": "-", "statistic": "lost", "arm": "hinge", "relation": "less"}
    assert branching.read(written(tmp_path, hypotheses=[entry])).hypotheses[0].decide == "holm"
    with refused(code, *named):
        branching.read(written(tmp_path, hypotheses=[entry | wrong]))
