"""verl's reward loop with our grader: the shaped reward is the local backend's at every length."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from mcpo_cli.backends.graded import overlong_penalty
from mcpo_cli.backends.verl.overrides import Paths, overrides, table
from mcpo_cli.backends.verl.reward import compute_score
from mcpo_cli.config.load import load
from tests.models import wordy
from tests.policies import TOKENIZER
from tests.verl.test_overrides import composed

pytestmark = pytest.mark.verl


def shaped(config: Any, response: str) -> float:
    """The reward of one response by the reward manager."""
    from verl import DataProto

    from mcpo_cli.backends.verl.manager import Rewards

    ids = torch.tensor([TOKENIZER(response)["input_ids"]])
    row = {
        "data_source": "k2-3",
        "reward_model": {"ground_truth": "3 = 5"},
        "extra_info": {"problem": "1 + 2 + 2 _ =", "grader": "trace"},
    }
    data = DataProto.from_dict(
        tensors={"prompts": ids, "responses": ids, "attention_mask": torch.ones(1, 2 * ids.shape[1], dtype=torch.long)},
        non_tensors={name: np.array([value], dtype=object) for name, value in row.items()},
    )
    manager = Rewards(config, TOKENIZER, compute_score)
    return float(manager.loop.run_until_complete(manager.run_single(data))["reward_score"])


@pytest.mark.parametrize("cache", [0, 4, 6])
def test_overlong_shaping_is_the_local_backends(cache: int, tmp_path: Path) -> None:
    (spec,) = load(["scale=verl-cpu", f"train.overlong_cache={cache}", "train.overlong_penalty=0.7"])
    config = composed(overrides(spec, table(spec, Paths(tmp_path, tmp_path, "model"))))
    for length in range(1, spec.train.max_response + 1):
        penalty = overlong_penalty(torch.tensor(length), spec.train.max_response, cache, 0.7)
        wrong = " ".join(["4"] * (length - 1) + ["<eos>"])
        assert shaped(config, wrong) == pytest.approx(float(penalty), abs=1e-6)
    assert shaped(config, "3 = 5 <eos>") == 1


def test_the_graders_get_what_was_sampled(tmp_path: Path) -> None:
    """Special tokens within a response, and the tag that its prompt opened; not the token that ended it."""
    from verl import DataProto

    from mcpo_cli.backends.verl.manager import Rewards

    (spec,) = load(["scale=verl-cpu"])
    words = AutoTokenizer.from_pretrained(wordy(tmp_path / "words"))
    words.add_special_tokens({"additional_special_tokens": ["<answer>"]})
    prompt, response = words("Why?<think>\n")["input_ids"], words("so<answer>7<end>")["input_ids"]
    row = {"data_source": "x", "reward_model": {"ground_truth": "7"}, "extra_info": {"problem": "Why?"}}
    padding = [0, 0]
    data = DataProto.from_dict(
        tensors={
            "prompts": torch.tensor([padding + prompt]),
            "responses": torch.tensor([response + padding]),
            "attention_mask": torch.tensor([[0] * 2 + [1] * len(prompt + response) + [0] * 2]),
        },
        non_tensors={name: np.array([value], dtype=object) for name, value in row.items()},
    )
    seen = []

    async def score(extra_info: dict[str, Any], **_: Any) -> float:
        seen.append(extra_info["response"])
        return 0.0

    config = composed(overrides(spec, table(spec, Paths(tmp_path, tmp_path, "model"))))
    manager = Rewards(config, words, score)
    manager.loop.run_until_complete(manager.run_single(data))
    assert seen == ["<think>\nso<answer>7"]
