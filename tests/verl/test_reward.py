"""verl's reward loop with our grader: the shaped reward is the local backend's at every length."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mcpo_cli.backends.graded import overlong_penalty
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.verl.overrides import Paths, overrides
from mcpo_cli.backends.verl.reward import compute_score
from mcpo_cli.config.load import load
from mcpo_cli.tasks.chains import Arithmetic

pytestmark = pytest.mark.verl
TOKENIZER = tokenizers.build(Arithmetic().vocabulary)


def shaped(config: Any, response: str) -> float:
    """The reward of one response by verl's reward manager."""
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.dapo import DAPORewardManager

    ids = torch.tensor([TOKENIZER(response)["input_ids"]])
    row = {
        "data_source": "k2-3",
        "reward_model": {"ground_truth": "3 = 5"},
        "extra_info": {"problem": "1 + 2 + 2 _ =", "grader": "trace"},
    }
    data = DataProto.from_dict(
        tensors={"responses": ids, "attention_mask": torch.ones_like(ids)},
        non_tensors={name: np.array([value], dtype=object) for name, value in row.items()},
    )
    manager = DAPORewardManager(config, TOKENIZER, compute_score)
    return float(manager.loop.run_until_complete(manager.run_single(data))["reward_score"])


@pytest.mark.parametrize("cache", [0, 4, 6])
def test_overlong_shaping_is_the_local_backends(cache: int, tmp_path: Path) -> None:
    from hydra import compose, initialize_config_module

    (spec,) = load(["scale=verl-cpu", f"train.overlong_cache={cache}", "train.overlong_penalty=0.7"])
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides(spec, Paths(tmp_path, tmp_path, "model")))
    for length in range(1, spec.train.max_response + 1):
        penalty = overlong_penalty(torch.tensor(length), spec.train.max_response, cache, 0.7)
        wrong = " ".join(["4"] * (length - 1) + ["<eos>"])
        assert shaped(config, wrong) == pytest.approx(float(penalty), abs=1e-6)
    assert shaped(config, "3 = 5 <eos>") == 1
