"""All of verl's settings at `scale=paper` as verl composes them, ours and its defaults, against a recorded file.

`tests/golden/verl` has the settings that we set; this has those that a run uses. After an intended change,
`python -m tests.verl.test_resolved` writes the file again; read the difference.
"""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from mcpo_cli.backends.verl import overrides
from mcpo_cli.config.load import load

pytestmark = pytest.mark.verl
RECORDED = Path(__file__).parent / "resolved.yaml"


def resolved() -> str:
    (spec,) = load(["scale=paper", "method=mcpo", "model=qwen3-8b"])
    words = overrides.overrides(spec, overrides.planned(spec, Path("/MCPO_HOME")))
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=words)
    OmegaConf.resolve(config)
    return OmegaConf.to_yaml(config, sort_keys=True).replace(spec.run_id, "RUN_ID")


def test_a_run_of_the_paper_uses_the_recorded_settings() -> None:
    assert resolved().splitlines() == RECORDED.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    RECORDED.write_text(resolved(), encoding="utf-8")
