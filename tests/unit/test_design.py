"""Designs of suites: points spread over a space of settings."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mcpo_cli.config import plan
from mcpo_cli.config.design import Design, Factor
from tests.errors import refused

LEVELS = Factor(levels=(64, 32, 16, 8))
RATIOS = Factor(low=2e-4, high=2e-3, log=True)


def suite(folder: Path, **design: object) -> str:
    """A suite of two arms with this design."""
    arms = {"base": ["scale=smoke", "method=grpo"], "hinge": ["scale=smoke", "method=mcpo", "train.lr=1e-3"]}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"arms": arms, "design": design}))
    return str(path)


def test_a_range_is_crossed_by_ratios_or_by_differences() -> None:
    assert [RATIOS.at(share) for share in (0, 0.5, 1)] == [2e-4, 6.32e-4, 2e-3]
    assert [Factor(low=0, high=10).at(share) for share in (0, 0.25, 1)] == [0, 2.5, 10]


@given(st.floats(0, 1))
def test_place_is_where_a_value_was_drawn(share: float) -> None:
    assert RATIOS.position(RATIOS.at(share)) == pytest.approx(share, abs=0.003)
    assert LEVELS.position(LEVELS.at(share)) == pytest.approx(share, abs=0.25)


def test_levels_are_drawn_equally_often_in_each_part_that_is_a_power_of_two() -> None:
    drawn = [point["train.mini_batch"] for point in Design(64, {"train.mini_batch": LEVELS, "lr": RATIOS}).settings()]
    for points in (4, 16, 64):
        assert {level: drawn[:points].count(level) for level in LEVELS.levels} == dict.fromkeys(
            LEVELS.levels, points // 4
        )


def test_more_points_are_the_same_points_and_others() -> None:
    few, many = (Design(points, {"lr": RATIOS, "mb": LEVELS}, {"seed": (0, 1, 2)}).settings() for points in (5, 16))
    assert many[:5] == few
    assert Design(5, {"lr": RATIOS, "mb": LEVELS}, seed=1).settings() != few


def confounding(design: Design) -> dict[tuple[str, str], float]:
    """eta^2 of each factor's place by each block: the share of its variance between the block's values."""
    settings = design.settings()
    place_PF, found = design.positions(settings), {}
    for block, values in design.blocks.items():
        value_P = np.array([values.index(point[block]) for point in settings])
        means_PF = np.array([place_PF[value_P == value].mean(axis=0) for value in value_P])
        share_F = means_PF.var(axis=0) / place_PF.var(axis=0)
        found |= {(block, key): float(share) for key, share in zip(design.factors, share_F, strict=True)}
    return found


def halves(design: Design) -> bool:
    """True if every value of every block has points in the low and in the high half of every factor."""
    settings = design.settings()
    low_PF = design.positions(settings) < 0.5
    return all(
        np.all(low_PF[chosen].any(axis=0) & ~low_PF[chosen].all(axis=0))
        for block, values in design.blocks.items()
        for value in values
        for chosen in ([point[block] == value for point in settings],)
    )


DESIGNS = {name: read.design for name in plan.suites() if (read := plan.read(name)).design}


@pytest.mark.parametrize("name", [name for name, design in DESIGNS.items() if design and design.blocks])
def test_blocks_of_shipped_designs_go_along_with_no_factor_unless_they_say_so(name: str) -> None:
    design = DESIGNS[name]
    assert design is not None
    if name in ("map", "map-again"):
        # Registered with values in turn: seeds 3 and 4 of `map` have only low learning rates.
        assert design.assignment == "cyclic"
        assert confounding(design)["seed", "train.lr"] > 0.9
        assert not halves(design)
        design = replace(design, assignment="balanced")
    assert design.assignment == "balanced"
    assert max(confounding(design).values()) < 0.1
    assert halves(design)


def test_every_rate_of_map_low_is_drawn_once_and_trained_with_all_policies_and_seeds() -> None:
    suite = plan.read("map-low")
    assert suite.design
    rates = [point["train.lr"] for point in suite.design.settings()]
    assert sorted(rates) == sorted(suite.design.factors["train.lr"].levels)
    assert not suite.design.blocks
    assert [len(suite.sweep[key]) for key in ("base_seed", "seed")] == [8, 2]


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.lists(st.integers(2, 8), min_size=1, max_size=2), st.integers(12, 20), st.integers(0, 99))
@example(factors=6, sizes=[2, 2], strata=12, seed=3)
@example(factors=5, sizes=[2, 2], strata=12, seed=68)
@example(factors=5, sizes=[2, 2], strata=18, seed=52)
def test_no_block_goes_along_with_a_factor_or_another_block(
    factors: int, sizes: list[int], strata: int, seed: int
) -> None:
    levels = {"levels": LEVELS, "two": Factor(levels=(0, 1))}
    ranges = {f"range {i}": Factor(low=0, high=1) for i in range(factors - 2)}
    blocks = {f"block {i}": tuple(range(size)) for i, size in enumerate(sizes)}
    design = Design(strata * max(sizes), {**levels, **ranges}, blocks, seed=seed)
    assert max(confounding(design).values()) < 0.2
    assert halves(design)
    points = design.settings()
    for key, values in blocks.items():
        for start in range(0, len(points) - len(values) + 1, len(values)):
            assert {point[key] for point in points[start : start + len(values)]} == set(values)
    if len(sizes) == 2:
        together = [tuple(point[key] for key in blocks) for point in points]
        counts = [together.count(pair) for pair in product(*blocks.values())]
        assert max(counts) - min(counts) <= 3


def test_every_arm_is_trained_at_every_point_with_the_settings_that_concern_it(tmp_path: Path) -> None:
    factors = {
        "train.lr": {"low": 1e-4, "high": 1e-3},
        "method.delta": {"levels": [0.01, 0.02]},
        "train.steps": {"levels": [1, 2]},
    }
    name = suite(tmp_path, points=4, factors=factors, blocks={"seed": [0, 1]})
    cells = plan.from_suite(name, [], "mcpo ablate").cells
    assert [(cell.point, cell.arm) for cell in cells] == [(i, arm) for i in range(4) for arm in ("base", "hinge")]
    pairs = list(zip(cells[::2], cells[1::2], strict=True))
    assert all(base.spec.seed == hinge.spec.seed for base, hinge in pairs)
    assert sorted(base.spec.seed for base, _ in pairs) == [0, 0, 1, 1]
    assert all(base.spec.train.steps == hinge.spec.train.steps for base, hinge in pairs)
    # What an arm sets itself stays; an option goes to the arms whose method has it.
    assert {hinge.spec.train.lr for _, hinge in pairs} == {1e-3}
    assert len({base.spec.train.lr for base, _ in pairs}) == 4
    assert {hinge.spec.method.delta for _, hinge in pairs} == {0.01, 0.02}


def test_what_the_command_line_sets_is_no_factor_any_more(tmp_path: Path) -> None:
    name = suite(tmp_path, points=2, factors={"train.steps": {"levels": [1, 2]}, "seed": {"levels": [0, 1]}})
    cells = plan.from_suite(name, ["train.steps=3"], "mcpo ablate").cells
    assert {cell.spec.train.steps for cell in cells} == {3}


@pytest.mark.parametrize(
    ("design", "code", "named"),
    [
        ({"points": 0, "factors": {"seed": {"levels": [1]}}}, "out_of_bounds", "design.points=0"),
        ({"points": 2, "factors": {}}, "bad_input", "design.factors"),
        ({"points": 2, "factors": {"train.lrr": {"levels": [1]}}}, "unknown_key", "'train.lrr'"),
        ({"points": 2, "factors": {"train.lr": {"low": 1.0}}}, "bad_input", "train.lr"),
        ({"points": 2, "factors": {"train.lr": {"low": 1.0, "high": 0.5}}}, "bad_input", "train.lr"),
        ({"points": 2, "factors": {"train.lr": {"low": 0.0, "high": 0.5, "log": True}}}, "bad_input", "train.lr"),
        ({"points": 2, "factors": {"train.lr": {"low": 0.1, "high": 0.5, "levels": [0.1]}}}, "bad_input", "train.lr"),
        ({"points": 2, "factors": {"train.lr": {"levels": [0.1]}}, "blocks": {"sed": [1]}}, "unknown_key", "'sed'"),
    ],
)
def test_a_design_that_is_none_is_one_message(tmp_path: Path, design: dict[str, object], code: str, named: str) -> None:
    with refused(code, named) as caught:
        plan.from_suite(suite(tmp_path, **design), [], "mcpo ablate")
    assert caught.value.fix
