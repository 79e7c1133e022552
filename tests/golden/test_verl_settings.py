"""The command of `scale=paper`, kept as text, and each line of the paper's settings (Section 6.1) against it.

After an intended change, `python -m tests.golden.test_verl_settings` writes the files again; read the difference.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcpo_study.analysis.paper.published import paper
from omegaconf import OmegaConf

from mcpo_cli.backends.verl import overrides
from mcpo_cli.commands.dry_run import preview_text
from mcpo_cli.config.load import load

FOLDER = Path(__file__).parent / "verl"
HOME = Path("/MCPO_HOME")
METHODS = ("dapo", "mcpo")
PAPER: dict[str, Any] = paper()["settings"]
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
SHAPING = "reward.reward_kwargs.overlong_buffer_cfg"

# Lines of the paper's settings that verl has keys for: each key, and its value for both methods.
LINES: dict[str, dict[str, Any]] = {
    "optimizer": {f"{ACTOR}.optim.optimizer": PAPER["optimizer"], f"{ACTOR}.optim.optimizer_impl": "torch.optim"},
    "learning_rate": {f"{ACTOR}.optim.lr": PAPER["learning_rate"]},
    "learning_rate_schedule": {
        f"{ACTOR}.optim.lr_scheduler_type": PAPER["learning_rate_schedule"].partition(",")[0],
        f"{ACTOR}.optim.lr_warmup_steps": 0,
        f"{ACTOR}.optim.lr_warmup_steps_ratio": 0.0,
    },
    "train_batch_prompts": {"data.train_batch_size": PAPER["train_batch_prompts"]},
    "mini_batch_prompts": {f"{ACTOR}.ppo_mini_batch_size": PAPER["mini_batch_prompts"], f"{ACTOR}.ppo_epochs": 1},
    "rollouts_per_prompt": {f"{ROLLOUT}.n": PAPER["rollouts_per_prompt"]},
    "max_response_tokens": {
        "data.max_response_length": PAPER["max_response_tokens"],
        f"{ROLLOUT}.response_length": PAPER["max_response_tokens"],
        "reward.reward_kwargs.max_resp_len": PAPER["max_response_tokens"],
    },
    "overlong_cache_tokens": {
        "reward.reward_manager.name": "Rewards",
        f"{SHAPING}.enable": True,
        f"{SHAPING}.len": PAPER["overlong_cache_tokens"],
    },
    "evaluation": {
        f"{ROLLOUT}.val_kwargs": {
            "n": PAPER["evaluation"]["samples_per_problem"],
            "temperature": PAPER["evaluation"]["temperature"],
            "top_p": 1.0,
            "top_k": -1,
            "do_sample": True,
        },
        f"{ROLLOUT}.response_length": PAPER["evaluation"]["max_response_tokens"],
    },
}


def golden(method: str) -> Path:
    return FOLDER / f"8b-{method}.txt"


def shown(method: str) -> str:
    """The output of a dry run for one run, with fixed names in place of the home and of Python's path."""
    return preview_text(preview(method)).replace(sys.executable, "python") + "\n"


def preview(method: str) -> dict[str, Any]:
    (spec,) = load(["backend=verl", "scale=paper", f"method={method}", "model=qwen3-8b"])
    return overrides.preview(spec, HOME)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_started_is_what_is_kept(method: str) -> None:
    assert shown(method) == golden(method).read_text(encoding="utf-8")


def test_the_papers_lines() -> None:
    """For one method; `test_the_methods_differ_in_nothing_else` has the other."""
    config = OmegaConf.create(preview("mcpo")["config"])
    found = {line: {key: OmegaConf.select(config, key) for key in keys} for line, keys in LINES.items()}
    assert found == LINES


def test_the_methods_differ_in_nothing_else() -> None:
    dapo, mcpo = (preview(method)["config"] for method in ("dapo", "mcpo"))
    # The filter, and its requests for prompts.
    assert dapo["algorithm"].pop("filter_groups")["metric"] == mcpo["algorithm"].pop("filter_groups")["metric"]
    assert (dapo["data"].pop("gen_batch_size"), mcpo["data"].pop("gen_batch_size")) == (1, 128)
    names = [load(["scale=paper", f"method={method}"])[0].run_id for method in METHODS]
    assert yaml.safe_dump(dapo).replace(names[0], "RUN") == yaml.safe_dump(mcpo).replace(names[1], "RUN")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in METHODS:
        golden(name).write_text(shown(name), encoding="utf-8")
