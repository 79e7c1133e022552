"""The study of maps: its points and intervals are those of the committed rows, and planted responses are found."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from mcpo_study.analysis import EXPERIMENTS
from mcpo_study.analysis.maps import design, response
from mcpo_study.analysis.maps.surface import Surface, calibration, sensitivity
from scipy.stats import qmc

from mcpo_cli.config.plan import from_suite
from mcpo_cli.statistics.stats import Floats
from tests.errors import refused

SPACES, RESULTS = EXPERIMENTS / "map" / "spaces", EXPERIMENTS / "map" / "results"
N, F, NOISE = 128, 4, 0.02


@pytest.mark.parametrize("name", ["map", "map-again"])
def test_the_points_are_those_of_the_committed_rows(name: str) -> None:
    committed = pd.read_csv(RESULTS / f"{name}.csv").drop_duplicates("point").set_index("point")
    space = design.read(SPACES / f"{name}.yaml")
    drawn = pd.DataFrame(space.design.settings())[: len(committed)]
    keys = [*space.design.factors, *space.design.blocks]
    assert len(committed) == 64
    np.testing.assert_array_equal(drawn[keys], committed[keys])


@pytest.mark.parametrize(
    ("arm", "metric", "mean", "half"),
    [
        ("hinge", "pass@1", 0.0218, 0.0135),
        ("hinge", "next-step gap", -0.0151, 0.0123),
        ("MCPO", "pass@1", 0.0174, 0.0135),
        ("reweight", "pass@1", 0.0029, 0.0063),
    ],
)
def test_the_committed_rows_give_the_published_intervals(arm: str, metric: str, mean: float, half: float) -> None:
    responses = response.responses(pd.read_csv(RESULTS / "map.csv"), design.read(SPACES / "map.yaml"))
    (found,) = [one for one in responses if (one.arm, one.metric) == (arm, metric)]
    expected = (24, pytest.approx(mean, abs=5e-5), pytest.approx(half, abs=5e-5))
    assert (found.mean.n, found.mean.mean, found.mean.half_width) == expected


def test_a_suite_trains_every_arm_at_every_point_with_the_settings_that_concern_it(tmp_path: Path) -> None:
    factors = {
        "train.lr": {"low": 1e-4, "high": 1e-3},
        "method.delta": {"levels": [0.01, 0.02]},
        "train.steps": {"levels": [1, 2]},
    }
    arms = {"base": ["method=grpo"], "hinge": ["method=mcpo", "train.lr=1e-3"]}
    content = {"arms": arms, "baseline": "base", "sweep": {"scale": ["smoke"]}}
    content["design"] = {"points": 4, "factors": factors, "blocks": {"seed": [0, 1]}}
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(design.read(tmp_path / "space.yaml").suite(), sort_keys=False))
    cells = from_suite(str(tmp_path / "suite.yaml"), [], "mcpo").cells
    assert [cell.arm for cell in cells] == [f"{arm} at point {i}" for i in range(4) for arm in arms]
    pairs = list(zip(cells[::2], cells[1::2], strict=True))
    assert all(base.spec.seed == hinge.spec.seed for base, hinge in pairs)
    assert sorted(base.spec.seed for base, _ in pairs) == [0, 0, 1, 1]
    assert all(base.spec.train.steps == hinge.spec.train.steps for base, hinge in pairs)
    # What an arm sets itself stays; an option goes to the arms whose method has it.
    assert {hinge.spec.train.lr for _, hinge in pairs} == {1e-3}
    assert len({base.spec.train.lr for base, _ in pairs}) == 4
    assert {hinge.spec.method.delta for _, hinge in pairs} == {0.01, 0.02}
    content["design"]["factors"] = {"train.lr": {"low": 1.0, "high": 0.5}}
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(content))
    with refused("bad_input", "space.yaml", "train.lr"):
        design.read(tmp_path / "space.yaml")


@pytest.fixture(scope="module")
def places() -> Floats:
    return np.asarray(qmc.Sobol(F, rng=3).random(N))


def planted(place_NF: Floats) -> Floats:
    """It depends on the first two settings alone, with an interaction."""
    return 0.2 * (place_NF[:, 0] - 0.5) + 0.2 * (place_NF[:, 0] - 0.5) * (place_NF[:, 1] - 0.5)


@pytest.mark.slow
def test_a_planted_response_is_found_and_noise_is_not(places: Floats) -> None:
    seen = planted(places) + np.random.default_rng(0).normal(0, NOISE, N)
    fitted = Surface(places, seen)
    elsewhere = np.asarray(qmc.Sobol(F, rng=9).random(64))
    mean_M, sd_M = fitted.at(elsewhere)
    error_M = mean_M - planted(elsewhere)
    assert np.sqrt(np.mean(error_M**2)) < NOISE / 2
    assert np.mean(np.abs(error_M) < 2 * sd_M) > 0.85
    assert fitted.noise == pytest.approx(NOISE, rel=0.3)
    mean_M, above_M = fitted.over([0], np.array([[0.1], [0.9]]), places)
    assert mean_M == pytest.approx([-0.08, 0.08], abs=0.02)
    assert above_M == pytest.approx([0, 1], abs=0.05)
    total_F = sensitivity(fitted)
    assert total_F[0] > 0.8
    assert max(total_F[2:]) < 0.05
    assert calibration(places, seen).explained > 0.8
    noise = np.random.default_rng(1).normal(0, NOISE, 48)
    assert not np.any(Surface(places[:48], noise).sure(places))
    assert calibration(places[:48], noise).explained < 0.2
