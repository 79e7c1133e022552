"""The study of maps: its points are those of the committed rows, and a suite trains what a space says."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from mcpo_study.analysis import EXPERIMENTS
from mcpo_study.analysis.maps import design

from mcpo_cli.config.plan import from_suite
from tests.errors import refused

SPACES, RESULTS = EXPERIMENTS / "map" / "spaces", EXPERIMENTS / "map" / "results"


@pytest.mark.parametrize("name", ["map", "map-again"])
def test_the_points_are_those_of_the_committed_rows(name: str) -> None:
    committed = pd.read_csv(RESULTS / f"{name}.csv").drop_duplicates("point").set_index("point")
    space = design.read(SPACES / f"{name}.yaml")
    drawn = pd.DataFrame(space.design.settings())[: len(committed)]
    keys = [*space.design.factors, *space.design.blocks]
    assert len(committed) == 64
    np.testing.assert_array_equal(drawn[keys], committed[keys])


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
    runs = from_suite(str(tmp_path / "suite.yaml"), [], "mcpo").runs
    assert [run.arm for run in runs] == [f"{arm} at point {i}" for i in range(4) for arm in arms]
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
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
