"""NaN and infinity end a run before they reach weights, checkpoints or evaluations."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from mcpo_cli.backends.checks import NotFinite
from mcpo_cli.backends.local import BACKEND
from mcpo_cli.backends.local.generate import Rollouts, sample
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.update import GradedBatch, Updater
from mcpo_cli.backends.measure import MetricSums
from mcpo_cli.backends.verl.loss import gradient_steps
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Compute, RunSpec
from mcpo_cli.errors import RunFailed
from mcpo_cli.methods import Clipped, Method, Normalized, Step, TokenBatch
from mcpo_cli.runs.attempts import Attempt, resume_step
from mcpo_cli.runs.journal import Journal
from tests.errors import refused
from tests.policies import EOS, G, T, new_policy, prompts


@dataclass(frozen=True)
class NaNAdvantages(Clipped, Normalized):
    """Divides 0 by 0 in a group whose rewards are all equal."""

    name: ClassVar[str] = "nan_advantages"

    def advantages(self, reward_PG: Tensor, correct_PG: Tensor) -> Tensor:
        centered_PG = reward_PG - reward_PG.mean(-1, keepdim=True)
        return centered_PG / (centered_PG * 0)


@dataclass(frozen=True)
class InfiniteLoss(Clipped, Normalized):
    """A loss that is infinite and has a finite gradient."""

    name: ClassVar[str] = "infinite_loss"

    def policy_loss(self, batch: TokenBatch) -> Tensor:
        return super().policy_loss(batch) + torch.inf


def spec_of(*overrides: str, accuracy: float = 0) -> RunSpec:
    """Two mini-batches per step from an untrained policy, with random rewards, so that there are gradients."""
    coins = ["train.reward=random", "train.overlong_cache=0", "method=grpo"]
    quick = ["scale=smoke", "train.steps=3", "eval.samples=1", "compute.checkpoint_every=1"]
    quick += [f"warmup.target_accuracy={accuracy}", "warmup.probe_prompts=8"]
    small = ["train.prompts=8", "train.mini_batch=4", "probe.every=0", "probe.gradients_every=0", "probe.panel_every=0"]
    return load([*coins, *quick, *small, *overrides])[0]


def rollouts(policy: Policy) -> Rollouts:
    return sample(policy, prompts(2), G, T, 1.0, EOS, seed=3)


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("attempt_*/checkpoints/step_*"))


def test_a_learning_rate_that_breaks_the_policy_fails_the_run_in_every_attempt(mcpo_home: Path) -> None:
    # An untrained policy survives this: its warm-up takes ten steps.
    spec = spec_of("train.lr=1e30", "warmup.batch=8", accuracy=1e-9)
    folder = mcpo_home / "runs" / spec.run_id
    for _ in range(2):
        with refused("run_failed", "step 1, mini-batch 2: NaN or infinite: train/grad_norm") as raised:
            BACKEND.run(spec, Attempt(folder, spec, resume_step(folder, spec, BACKEND.kept(folder))), lambda: False)
        assert "a smaller train.lr" in str(raised.value.fix)
    assert Journal(folder).steps() == []
    assert set(Journal(folder).files("eval")) == {0}
    assert set(checkpoints(folder)) == {"step_000000"}


@pytest.mark.parametrize(
    ("every", "said"),
    [
        (1, "evaluation after step 2: the log-probabilities of the policy are NaN or infinite"),
        (3, "step 2: a weight of the policy is NaN or infinite"),
    ],
)
def test_rows_up_to_the_last_finite_step_stay(
    every: int, said: str, mcpo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy breaks in the last gradient step of global step 2; an evaluation or a checkpoint is due next."""
    spec, take = spec_of(f"eval.every={every}"), Updater.mini_batch

    def breaks(self: Updater, batch: GradedBatch, step: int, number: int) -> MetricSums:
        sums = take(self, batch, step, number)
        if (step, number) == (2, 1):
            next(iter(self.policy.parameters())).data.fill_(torch.nan)
        return sums

    monkeypatch.setattr(Updater, "mini_batch", breaks)
    folder = mcpo_home / "runs" / spec.run_id
    with pytest.raises(NotFinite, match=f"^{said}"):
        BACKEND.run(spec, Attempt(folder, spec, 0), lambda: False)
    assert [row["step"] for row in Journal(folder).steps()] == [1, 2]
    assert set(checkpoints(folder)) == {"step_000000", "step_000001"}
    assert max(Journal(folder).files("eval")) < 2
    assert resume_step(folder, spec, BACKEND.kept(folder)) == 1


def test_nan_advantages_end_a_run_before_the_first_gradient_step(mcpo_home: Path) -> None:
    spec = dataclasses.replace(spec_of(), method=NaNAdvantages())
    folder = mcpo_home / "runs" / spec.run_id
    with refused("run_failed", "step 1", "method=nan_advantages"):
        BACKEND.run(spec, Attempt(folder, spec, 0), lambda: False)
    assert Journal(folder).steps() == []


@pytest.mark.parametrize(
    ("method", "names"),
    [(NaNAdvantages(), "train/policy_loss, train/grad_norm"), (InfiniteLoss(), "train/policy_loss")],
    ids=lambda value: getattr(value, "name", ""),
)
def test_no_weight_moves_by_a_gradient_step_that_is_not_finite(method: Method, names: str) -> None:
    policy, before = new_policy(), new_policy()
    updater = Updater(policy, method, dataclasses.replace(spec_of().train, prompts=2, mini_batch=2), Compute(), seed=0)
    drawn, correct_PG = rollouts(policy), torch.tensor([[True, False, False, False], [True, True, False, False]])
    step = Step(correct_PG.double(), correct_PG, drawn.length_PG, torch.arange(2), max_response=T)
    batch = GradedBatch(drawn, correct_PG, method.signals(step, {})[0], torch.arange(2), drawn.drawn_PG)
    with pytest.raises(NotFinite, match=f"^step 3, mini-batch 1: NaN or infinite: {names}\n") as raised:
        updater.mini_batch(batch, 3, 0)
    assert isinstance(raised.value, RunFailed)
    assert all(torch.equal(mine, old) for mine, old in zip(policy.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_end_sampling(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, logits = new_policy(), Policy.logits

    def broken(self: Policy, x_NE: Tensor) -> Tensor:
        logits_NV = logits(self, x_NE)
        logits_NV[0, 0] = value
        return logits_NV

    monkeypatch.setattr(Policy, "logits", broken)
    with refused("run_failed", "log-probabilities"):
        rollouts(policy)


def test_a_warm_up_that_diverges_leaves_no_base_policy(mcpo_home: Path) -> None:
    spec = spec_of("warmup.lr=1e30", accuracy=0.9)
    with refused("run_failed", "warm-up step 1") as raised:
        BACKEND.run(spec, Attempt(mcpo_home / "runs" / spec.run_id, spec, 0), lambda: False)
    assert raised.value.fix == "a smaller warmup.lr"
    assert not list((mcpo_home / "cache").rglob("model.safetensors"))


@pytest.mark.parametrize("broken", [lambda loss, norm: (torch.nan, norm), lambda loss, norm: (loss, torch.inf)])
def test_gradient_steps_that_verl_left_out_end_its_run(broken: Callable[[float, float], tuple[float, float]]) -> None:
    """verl's engine skips a step whose norm is not finite, and continues without a note in its metrics."""

    def reports(loss: float) -> list[dict[str, object]]:
        return [{"group": group, "sums": {"train/policy_loss": [loss, 0.0]}, "prompts": {}} for group in (0, 4)]

    rows, _ = gradient_steps(7, reports(0.5), [1.0, 2.0], 4, MetricSums())
    assert [row["sums"]["train/grad_norm"] for row in rows] == [[1.0, 1], [2.0, 1]]
    loss, norm = broken(0.5, 2.0)
    with pytest.raises(NotFinite, match=r"^step 7, mini-batch [12]: NaN or infinite: train/"):
        gradient_steps(7, reports(loss), [1.0, norm], 4, MetricSums())
