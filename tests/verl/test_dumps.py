"""Dumps of verl's own validation (`trainer.validation_data_dir`): read and compared, with a correct verdict.

The loop, the batches and the writer are verl's; the rollouts come from a table, so that their accuracy is known.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.log import Side
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.readers import Options, read

pytestmark = [pytest.mark.verl, pytest.mark.slow]
PROBLEMS, SAMPLES = 60, 4
SHARES = {"good": 0.9, "weak": 0.5, "weak-again": 0.5}
"""Probability of a correct answer of each model."""


class Rollouts:
    """Answers that are correct with probability `share`; scores are -1 and 1, as in verl's reward for DAPO."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self.random = share, np.random.default_rng(seed)
        self.right: list[bool] = []

    def generate_sequences(self, batch: Any) -> Any:
        from verl import DataProto

        right_N = self.random.random(len(batch)) < self.share
        self.right += right_N.tolist()
        tensors = {
            "prompts": torch.tensor([[int(number)] for number in batch.non_tensor_batch["number"]]),
            "responses": torch.tensor([[int(right)] for right in right_N]),
            "rm_scores": torch.tensor(np.where(right_N, 1.0, -1.0))[:, None],
        }
        return DataProto.from_dict(tensors, {"acc": right_N}, {"reward_extra_keys": ["acc"]})


def validated(folder: Path, rollouts: Rollouts) -> None:
    """Let verl validate once, at step 20."""
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    numbers = np.arange(PROBLEMS)
    rows = {
        "dummy": torch.zeros(PROBLEMS, 1),
        "number": numbers.astype(object),
        "data_source": np.array(["sums"] * PROBLEMS, dtype=object),
        "reward_model": np.array([{"ground_truth": str(number)} for number in numbers], dtype=object),
    }
    trainer = RayPPOTrainer.__new__(RayPPOTrainer)
    settings = {
        "trainer": {"validation_data_dir": str(folder), "log_val_generations": 0},
        "actor_rollout_ref": {
            "rollout": {"val_kwargs": {"n": SAMPLES, "do_sample": True}, "agent": {"num_workers": 1}}
        },
    }
    trainer.config, trainer.global_steps, trainer.use_rm = OmegaConf.create(settings), 20, False
    trainer.val_dataloader, trainer.async_rollout_manager = [rows], rollouts
    trainer.tokenizer = SimpleNamespace(decode=lambda ids, **_: f"text {int(ids[0])}", eos_token_id=0, pad_token_id=0)
    trainer._init_dump_executor()
    trainer._validate()
    trainer._shutdown_dump_executor()


def test_validation_dumps(tmp_path: Path) -> None:
    sides = []
    for seed, (name, share) in enumerate(SHARES.items()):
        rollouts = Rollouts(share, seed)
        validated(tmp_path / name, rollouts)
        (log,) = read(tmp_path / name, Options())
        assert log.samples["correct"].astype(bool).tolist() == rollouts.right
        assert log.facts == {"validation": {"metric": "acc", "step": "20"}}
        sides.append(Side(name, (log,)))
    found = of_logs(sides, Question("weak")).differences
    assert dict(zip(found["arm"], found["verdict"], strict=True)) == {"good": "better", "weak-again": "undecided"}
    assert set(found["problems"]) == {PROBLEMS}
    # The reward's scores of -1 and 1 keep their unit.
    by_reward = Options({"correct": ["score"]})
    rewarded = [Side(name, tuple(read(tmp_path / name, by_reward))) for name in SHARES]
    scores = of_logs(rewarded, Question("weak")).differences
    assert scores["difference"].tolist() == pytest.approx((2 * found["difference"]).tolist())
