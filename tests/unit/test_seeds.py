"""The base policy depends only on `base_seed`, and the draws of RL only on `seed`."""

from pathlib import Path

import pytest

from mcpo_cli.backends.local import train
from mcpo_cli.config.load import from_dict, load
from mcpo_cli.config.plan import from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.report.builder import check_axes
from mcpo_cli.runs import folders
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal, read_json
from tests.engine import NO_PROBES
from tests.errors import refused

UNTRAINED = ("scale=smoke", "method=grpo", "warmup.target_accuracy=0", "train.steps=1", "eval.problems=1", *NO_PROBES)


@pytest.mark.slow
def test_each_seed_drives_its_own_streams(mcpo_home: Path) -> None:
    prompts, weights = {}, {}
    for base_seed, seed in ((0, 5), (1, 5), (0, 6)):
        (spec,) = load([*UNTRAINED, f"base_seed={base_seed}", f"seed={seed}"])
        attempt = Attempt(run_dir(spec.run_id), spec, start_step=0)
        train.run(spec, attempt, stop=lambda: False)
        attempt.end("done")
        prompts[base_seed, seed] = [row["prompt"] for row in Journal(run_dir(spec.run_id)).groups()]
        manifest = read_json(mcpo_home / "cache" / "base" / spec.base_id / folders.MANIFEST)
        weights[base_seed, seed] = manifest["sha256"]["model.safetensors"]
    assert prompts[0, 5] == prompts[1, 5] != prompts[0, 6]
    assert weights[0, 5] == weights[0, 6] != weights[1, 5]


def test_without_a_base_seed_it_is_the_seed() -> None:
    (alone,), (both,) = load(["seed=3"]), load(["seed=3", "base_seed=3"])
    assert (alone.run_id, alone.base_id) == (both.run_id, both.base_id)
    assert "-toy-s-s3-" in alone.run_id
    assert from_dict(alone.to_dict()) == alone


def test_a_base_policy_belongs_to_its_seed() -> None:
    specs = load(["base_seed=0,1", "seed=3,4"])
    assert [spec.base_id for spec in specs[:2]] == [load(["seed=0"])[0].base_id] * 2
    assert len({spec.base_id for spec in specs}) == 2
    assert len({spec.run_id for spec in specs}) == 4
    assert [(one.about["base_seed"], one.about["seed"]) for one in specs] == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert [specs[3].seeds, load(["seed=3", "base_seed=3"])[0].seeds] == ["base seed 1, seed 4", "seed 3"]
    assert "-toy-s-b1-s4-" in specs[3].run_id


def test_regimes_are_told_apart_only_by_artifacts_that_say_so() -> None:
    forgetting = from_suite("forgetting", ["scale=smoke", "seed=0"], "")
    check_axes(forgetting, by_regime=True)
    with refused("bad_input", "base_seed"):
        check_axes(forgetting)
