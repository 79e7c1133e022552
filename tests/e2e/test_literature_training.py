"""Every kind of method trains on the local engine: five global steps of two gradient steps each."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mcpo_cli.config.load import load
from tests.engine import trained
from tests.methods import kinds

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]
EVALUATED = ("eval.every=5", "eval.problems=4", "eval.samples=1")
QUICK = ("scale=smoke", "train.steps=5", "train.lr=1e-3", "compute.checkpoint_every=5", *EVALUATED)
SHAPE = ("train.prompts=16", "train.mini_batch=8", "train.overlong_cache=0")
PROBES = ("probe.every=0", "probe.panel_every=0", "probe.gradients_every=4", "probe.gradient_prompts=2")
OPTIONS = {
    "gfpo": ["method.keep=3"],
    "mcpo_extended": ["method.mastery=0.7", "method.reweight_cap=1.5", "method.target_active=0.1"],
    "dapo": ["method.dynamic_sampling=false"],
    "rl_zvp": ["method.entropy=current"],
    # With the published shares a batch this small has one token.
    "clip_cov": ["method.share=0.1", "method.cov_low=0.1"],
    "kl_cov": ["method.share=0.1"],
}

STATEFUL = ("spo", "dcpo", "mcpo_extended")
"""Methods with a state in their checkpoints."""


@pytest.mark.parametrize("name", sorted({*kinds(), *STATEFUL}))
def test_five_steps(name: str, home: Path) -> None:
    # An odd number of rollouts, as mc_grpo wants one in the middle.
    (spec,) = load([f"method={name}", "train.rollouts=5", *QUICK, *SHAPE, *PROBES, *OPTIONS.get(name, [])])
    journal = trained(home, spec)
    folder, steps = journal.run_dir, [row["metrics"] for row in journal.steps()]
    assert len(steps) == 5
    assert all(math.isfinite(value) for metrics in steps for value in metrics.values())
    # Where all groups of a step are dead, some methods have no gradient.
    assert sum(metrics["train/grad_norm"] > 0 for metrics in steps) >= 3
    assert all("train/policy_loss" in metrics for metrics in steps)
    rows = [row for path in journal.files("mini_batches").values() for row in path.read_text().splitlines()]
    assert len(rows) == 5 * 2
    (base,) = (home / "cache" / "base").glob("*/model.safetensors")
    before, after = load_file(base), load_file(folder / "attempt_1" / "policy" / "model.safetensors")
    assert any(not torch.equal(before[key], after[key]) for key in before)
    state = sorted(folder.glob("attempt_1/checkpoints/step_*/method.safetensors"))
    assert bool(state) == (name in STATEFUL)


def with_shares(home: Path, *overrides: str) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The trained weights of a run, and at each step with mastered prompts the share of tokens the hinge acted on."""
    (spec,) = load([*overrides, *QUICK, *PROBES, "train.prompts=16", "train.rollouts=2"])
    journal = trained(home, spec)
    metrics = [row["metrics"] for row in journal.steps()]
    shares = [values["hinge/tokens_active"] for values in metrics if "hinge/tokens_active" in values]
    return load_file(journal.run_dir / "attempt_1" / "policy" / "model.safetensors"), shares


@pytest.mark.parametrize(("mini_batch", "acts"), [(16, False), (4, True)])
def test_with_one_mini_batch_the_hinge_changes_no_bit(mini_batch: int, acts: bool, home: Path) -> None:
    """M0 of `preregistration.yaml`: no token has drifted at the only gradient step of a global step."""
    size = f"train.mini_batch={mini_batch}"
    hinge, shares = with_shares(home, "method=mcpo", "method.beta=10", "method.delta=1e-6", size)
    none, _ = with_shares(home, "method=mcpo", "method.hinge=false", size)
    assert shares
    assert any(shares) == acts
    assert all(torch.equal(hinge[key], none[key]) for key in none) != acts
