"""The exact change of accuracy, which checks the estimate of branch studies: by hand and simulated."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mcpo_study.analysis.branch_estimator import __main__ as branch_estimator
from mcpo_study.analysis.branch_estimator.__main__ import Exact, Response

from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert

BEFORE = {"a": 0.5, "b": 0.2, "c": 0.1, "d": 0.1, "e": 0.1}
AFTER = {"a": 0.6, "b": 0.1, "c": 0.05, "d": 0.15, "e": 0.1}
CORRECT = "abd"
CHANGE = 0.05
"""Change of the probability of a, b and d together."""


def drawn(before: str, after: str) -> list[Response]:
    """The distinct responses before and after the step."""
    return [
        Response(
            name in CORRECT,
            BEFORE[name],
            AFTER[name],
            {pair for side in (before, after) for pair, other in enumerate(side) if other == name},
            (before.count(name), after.count(name)),
        )
        for name in dict.fromkeys(before + after)
    ]


def test_by_hand() -> None:
    """Pairs (a, a), (a, b), (c, a): b is new in the second, drawn once after the step."""
    found = branch_estimator.exact(drawn("aac", "aba"), 3)
    assert found.change == pytest.approx(0.1 - 0.1 + (1 + 0.1) / 3)
    assert found.noise == pytest.approx(1 / 3)
    assert found.covered == pytest.approx(0.8)


@pytest.mark.slow
def test_it_has_no_bias_and_the_noise_that_it_names() -> None:
    rng, names = np.random.default_rng(0), list(BEFORE)
    found = list[Exact]()
    for _ in range(20_000):
        before, after = ("".join(rng.choice(names, 4, p=[*table.values()])) for table in (BEFORE, AFTER))
        found.append(branch_estimator.exact(drawn(before, after), 4))
    change_N = np.array([one.change for one in found])
    assert change_N.mean() == pytest.approx(CHANGE, abs=3.5 * change_N.std() / 20_000**0.5)
    assert change_N.std() == pytest.approx(np.mean([one.noise**2 for one in found]) ** 0.5, rel=0.25)


def table(rng: np.random.Generator, replicates: int, shift: float, spread: float) -> pd.DataFrame:
    """Estimates of 10 groups of 5 problems, whose changes have standard deviation .1, in two tiers."""
    rows = []
    for tier in ("x", "y"):
        change_P = rng.normal(0, 0.1, 50)
        for group in range(10):
            own = change_P[group * 5 : group * 5 + 5]
            for replicate in range(replicates):
                value = own + shift + rng.normal(0, 0.02, 5)
                rows.append(
                    {
                        "step": 1,
                        "arm": "none",
                        "tier": tier,
                        "group": group,
                        "replicate": replicate,
                        "prompts": 5,
                        "change": value.mean(),
                        "error": spread * value.std(ddof=1) / 5**0.5,
                        "exact": own.mean(),
                        "noise": 0.0,
                    }
                )
    return pd.DataFrame(rows)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.01])
def test_bias_is_what_replicates_agree_on(shift: float) -> None:
    rng = np.random.default_rng(1)
    found = [branch_estimator.bias(table(rng, 16, shift, 1.0)) for _ in range(60)]
    assert sum(one.low < shift < one.high for one in found) >= 51, "95 % of 60, less 3.5 standard errors"
    assert max(one.half_width for one in found) < 0.003, "0.02 / sqrt(16 replicates x 100 problems), times 2.13"


def test_what_was_counted_widens_the_interval() -> None:
    data = table(np.random.default_rng(1), 16, 0.0, 1.0)
    noisy = branch_estimator.bias(data.assign(noise=0.01))
    assert noisy.half_width == pytest.approx(2.131 * 0.01 / 20**0.5, rel=0.1)


@pytest.mark.parametrize(("spread", "ratio"), [(1.0, 1.0), (0.5, 4.0)])
def test_a_claimed_error_that_is_too_small_shows(spread: float, ratio: float) -> None:
    rng = np.random.default_rng(2)
    found = [branch_estimator.error(table(rng, 4, 0.0, spread)) for _ in range(40)]
    assert np.mean([one.mean for one in found]) == pytest.approx(ratio, rel=0.15)
    assert sum(one.low < ratio < one.high for one in found) >= 32


def test_a_tier_of_one_group_says_nothing_about_the_error() -> None:
    data = table(np.random.default_rng(3), 4, 0.0, 1.0)
    alone = data[(data["tier"] == "y") & (data["group"] == 0)].assign(tier="z")
    assert branch_estimator.error(pd.concat([data, alone])) == branch_estimator.error(data)


def test_the_definition_is_read_and_every_number_is_tested() -> None:
    definition = convert(branch_estimator.Definition, read_yaml(branch_estimator.FILE), "file")
    assert {one.model for one in definition.hypotheses} == set(definition.models)
    assert {one.number for one in definition.hypotheses} == set(branch_estimator.NUMBERS)
    trunk = definition.trunk("toy-s")
    assert trunk.sizes.controls == 32 * definition.replicates
    assert trunk.at == (5, 15)


def test_the_page_has_the_numbers_of_the_committed_rows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "branching.md").read_text(encoding="utf-8")
    names = ("again", "more", "toy")
    again, more, toy = (branch_estimator.ROWS.with_name(f"branch-estimator-{name}.csv") for name in names)
    for model, name, file in (
        ("toy-s", "toy-s", branch_estimator.ROWS),
        ("smollm2-135m", "SmolLM2-135M", branch_estimator.ROWS),
        ("smollm2-135m", "SmolLM2-135M, again", again),
        ("smollm2-135m", "SmolLM2-135M, another trunk", more),
        ("toy-s", "toy-s, another trunk", toy),
    ):
        rows = branch_estimator.read(file)
        for cohort, own in rows[rows["model"] == model].groupby("cohort"):
            prompts = own.groupby(["step", "tier", "group"])["prompts"].first().sum()
            prefix = rf"^\| {name} \| {prompts} {str(cohort).replace('_', '-')}[^|]*\|"
            (cells,) = re.findall(rf"{prefix} (.*) \| (?:yes|open) \|$", page, re.MULTILINE)
            found = branch_estimator.bias(own)
            quoted = [float(number) for number in re.findall(r"[-+][.\d]+", cells)]
            assert quoted == pytest.approx([found.mean, found.low, found.high], abs=0.6e-5)
            within = found.low > -0.002 and found.high < 0.002
            assert re.search(rf"{prefix} {re.escape(cells)} \| {'yes' if within else 'open'} \|$", page, re.MULTILINE)
    for model, file in (
        ("toy-s", branch_estimator.ROWS),
        ("smollm2-135m", branch_estimator.ROWS),
        ("smollm2-135m", more),
        ("toy-s", toy),
    ):
        rows = branch_estimator.read(file)
        found = branch_estimator.error(rows[(rows["model"] == model) & (rows["cohort"] == "held_out")])
        assert f"{found.mean:.2f} ± {found.half_width:.2f}".removeprefix("0").replace("± 0", "± ") in page
