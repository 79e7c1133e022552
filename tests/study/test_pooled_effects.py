"""Effects over all studies: against Student's intervals over base policies, computed from the rows by other code."""

import numpy as np
import pandas as pd
import pytest
from mcpo_study.analysis import EXPERIMENTS
from mcpo_study.analysis.findings import __main__ as findings
from mcpo_study.analysis.findings import effects
from numpy.typing import NDArray
from scipy import stats

from mcpo_cli.statistics.difference_tests import p_values
from tests.errors import refused

NONE, HINGE, REWEIGHT, MCPO = "DAPO w/o filter", "w/o ReWeight", "w/o Hinge-KL", "MCPO"
SUITE = "open-claims"


def student(mean_U: "pd.Series[float]") -> tuple[float, float, float]:
    """Mean, half of its 95 % interval, and p."""
    half = stats.t.ppf(0.975, len(mean_U) - 1) * mean_U.sem()
    return float(mean_U.mean()), float(half), float(stats.ttest_1samp(mean_U, 0).pvalue)


def by_arm(statistic: str) -> pd.DataFrame:
    """Its value in each run of the suite of open claims: base policies and seeds x arms."""
    rows = pd.read_csv(EXPERIMENTS / "paper-claims" / "results" / "open-claims.csv", low_memory=False)
    runs = rows[(rows["block"] == "run") & (rows["suite"] == SUITE)]
    return runs.pivot(index=["base_seed", "seed"], columns="arm", values=statistic)


def test_equal_numbers_of_pairs_give_the_t_interval_over_base_policies() -> None:
    """The hinge's main effect of 12 base policies with 8 seeds each."""
    gap = by_arm("next-step gap")
    main = ((gap[HINGE] - gap[NONE]) + (gap[MCPO] - gap[REWEIGHT])) / 2
    found = effects.estimate(effects.declared()["gap-96"])
    assert (found.value, found.half_width, found.p) == pytest.approx(student(main.groupby("base_seed").mean()))
    assert (found.units, found.pairs, found.below) == (12, 96, 10)
    assert found.control == pytest.approx((gap[NONE] + gap[REWEIGHT]).mean() / 2)


def test_a_family_is_corrected_by_holm_and_a_margin_is_tested_from_both_sides() -> None:
    """The hinge's main effects on the next-step gap, and within .01 on pass@1, of 12 base policies."""
    weights = {HINGE: 0.5, NONE: -0.5, MCPO: 0.5, REWEIGHT: -0.5}
    columns, margins, p_values, among = ("next-step gap", "pass@1"), (None, 0.01), [], {}
    for column, margin in zip(columns, margins, strict=True):
        table = by_arm(column)
        mean_U = sum(weight * table[arm] for arm, weight in weights.items()).groupby("base_seed").mean()
        sides = [
            stats.ttest_1samp(mean_U, at, alternative=way).pvalue for at, way in ((-0.01, "greater"), (0.01, "less"))
        ]
        p_values.append(max(sides) if margin else stats.ttest_1samp(mean_U, 0).pvalue)
        about = {"id": column, "question": "", "label": "", "csv": ("open-claims.csv",), "where": {"suite": SUITE}}
        among[column] = effects.Effect(**about, columns=(column,), weights=weights, family="E", margin=margin)
    expected = holm_of_two(p_values)
    found = effects.adjusted("E", {**effects.declared(), **among})
    assert list(found) == list(columns)
    assert [*found.values()] == pytest.approx(expected)


def holm_of_two(p_values: list[float]) -> list[float]:
    """Holm's adjusted p of two hypotheses."""
    low, high = min(p_values), max(p_values)
    return [min(1.0, 2 * low) if p == low else max(min(1.0, 2 * low), high) for p in p_values]


def test_saved_states_count_by_their_mastered_prompts() -> None:
    """What the hinge takes off in one step of SmolLM2 at 6 x 1e-5: 14 runs of three sets."""
    results = EXPERIMENTS / "smollm2-one-step" / "results"
    names = ("smollm2", "smollm2-again", "smollm2-another-day")
    rows = pd.concat([pd.read_csv(results / f"{name}.csv") for name in names])
    lost = {}
    for arm in ("lr 10", "lr 10, hinge"):
        own = rows[(rows["cohort"] == "mastered") & (rows["arm"] == arm)]
        lost[arm] = {
            seed: -(part["change"] * part["prompts"]).sum() / part["prompts"].sum()
            for seed, part in own.groupby("seed")
        }
    difference = pd.Series(lost["lr 10, hinge"]) - pd.Series(lost["lr 10"])
    found = effects.estimate(effects.declared()["lost-smollm2"])
    assert (found.value, found.half_width, found.p) == pytest.approx(student(difference))
    signs = stats.permutation_test(
        (difference.to_numpy(),), lambda x, axis: x.mean(axis=axis), permutation_type="samples", n_resamples=20_000
    )
    assert found.flip_p == pytest.approx(signs.pvalue)


def test_sign_flips_decide_where_they_were_registered_and_a_hypothesis_holds_if_all_its_effects_do() -> None:
    """The hypotheses N1 to N3 of hinge-place, in 14 earlier runs of SmolLM2."""
    about = {"question": "", "label": "", "csv": ("smollm2.csv", "smollm2-again.csv", "smollm2-another-day.csv"),
             "family": "N", "by_flips": True}  # fmt: skip
    lost, gained = {"states": "mastered", "columns": ("lost",)}, {"states": "held_out", "columns": ("gained",)}
    smaller = {"lr 10, hinge": 1.0, "lr 7": -1.0}
    declared = [
        effects.Effect("N1", **about, **lost, weights={"lr 10, hinge": 1.0, "lr 10": -1.0}),
        effects.Effect("gained", **about, **gained, weights=smaller, margin=0.004, hypothesis="N3"),
        effects.Effect("lost", **about, **lost, weights=smaller, margin=0.003, at_most=True, hypothesis="N3"),
    ]
    values = {effect.id: effects.values(effect)["difference"].to_numpy() for effect in declared}
    flipped = max(
        flips(values["gained"] - 0.004, "less"), flips(values["gained"] + 0.004, "greater"),
        flips(values["lost"] - 0.003, "less"),
    )  # fmt: skip
    expected = dict(zip(("N1", "N3"), holm_of_two([flips(values["N1"], "two-sided"), flipped]), strict=True))
    found = effects.adjusted("N", {effect.id: effect for effect in declared})
    assert found == pytest.approx({"N1": expected["N1"], "gained": expected["N3"], "lost": expected["N3"]})


def test_more_units_than_are_flipped_have_no_p() -> None:
    few, many = (p_values(effects.SignFlips(np.ones(units))).p for units in (40, 41))
    assert few == pytest.approx(2 / 2**40)
    assert np.isnan(many)


def flips(value_U: NDArray[np.float64], alternative: str) -> float:
    """p of all 16,384 choices of signs."""
    test = stats.permutation_test(
        (value_U,), np.mean, permutation_type="samples", n_resamples=20_000, alternative=alternative
    )
    return float(test.pvalue)


def test_every_interval_covers_a_new_base_policy_as_often_as_it_says() -> None:
    records = pd.read_csv(findings.RECORDS).set_index("id")
    assert list(records.index) == list(effects.declared())
    assert records["covers"].between(0.93, 0.97).all()


def test_components_are_those_of_the_analysis_of_variance() -> None:
    """Two units of two pairs, by hand: mean squares 0.5 within and 16 between, so that (16 - .5) / 2 is a unit's."""
    found = findings.components(pd.Series([0.0, 1.0, 4.0, 5.0]), pd.Series(["a", "a", "b", "b"]))
    assert found == pytest.approx((7.75**0.5, 0.5**0.5))


def test_an_unknown_arm_or_column_is_refused_with_the_nearest_name() -> None:
    about = {"id": "x", "question": "", "label": "", "csv": ("map-low.csv",), "where": {"train.lr": 0.0008}}
    with refused("bad_input", "'hinge'"):
        effects.estimate(effects.Effect(**about, columns=("pass@1",), weights={"hing": 1.0}))
    with refused("bad_input", "'next-step gap'"):
        effects.estimate(effects.Effect(**about, columns=("next-step gab",), weights={"hinge": 1.0}))
