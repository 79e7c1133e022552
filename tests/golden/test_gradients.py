"""Gradients of single prompts: worked out by hand on a softmax over two or three tokens; Eq. 6 and 14 on a Qwen3."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mcpo_cli import tasks
from mcpo_cli.backends import measure
from mcpo_cli.backends.local import gradients
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local.generate import Rollouts, sample
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.update import GradedBatch, Updater
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.methods import Method, Step, get, query_weight
from mcpo_cli.records import GradientRow
from mcpo_cli.statistics import directions
from tests.policies import EOS, TOKENIZER, T, prompts

DAPO = get("dapo")


class Softmax(Policy):
    """Every token of every response is drawn from the softmax of the same logits, all 0 at first."""

    def __init__(self, vocabulary: int) -> None:
        self.logits_V = torch.zeros(vocabulary, requires_grad=True)
        self.layer_weights = vocabulary

    def parameters(self) -> list[Tensor]:
        return [self.logits_V]

    def log_probs(self, prompt_PS: Tensor, token_PGT: Tensor, mask_PGT: Tensor) -> Tensor:
        return self.logits_V.log_softmax(-1)[token_PGT] * mask_PGT


def bandit(*tokens: int, vocabulary: int) -> Rollouts:
    """One group of responses of one token each, drawn by `Softmax`."""
    token_PGT = torch.tensor(tokens)[None, :, None]
    logp_PGT = torch.full(token_PGT.shape, -math.log(vocabulary))
    ones_PG = torch.ones(1, len(tokens), dtype=torch.long)
    return Rollouts(torch.zeros(1, 1, dtype=torch.long), token_PGT, ones_PG, ones_PG.bool(), logp_PGT, -logp_PGT)


def graded(rollouts: Rollouts, method: Method, right: int, reward_G: list[float] | None = None) -> GradedBatch:
    """One group whose first `right` rollouts are correct."""
    correct_PG = torch.arange(rollouts.token_PGT.shape[1])[None] < right
    reward_PG = correct_PG.double() if reward_G is None else torch.tensor([reward_G], dtype=torch.float64)
    step = Step(reward_PG, correct_PG, rollouts.length_PG, torch.zeros(1, dtype=torch.long), max_response=9)
    signals, _ = method.signals(step, {})
    return GradedBatch(rollouts, correct_PG, signals, torch.zeros(1, dtype=torch.long), rollouts.drawn_PG)


def direction(policy: Policy, prompt: str, rollouts: Rollouts, method: Method, right: int, *reward_G: float) -> Any:
    """`update_direction` of the group that `graded` makes."""
    spec = RunSpec(method, tasks.get("arithmetic"))
    updater = Updater(policy, method, spec.train, spec.compute, spec.seed)
    return gradients.update_direction(updater, prompt, graded(rollouts, method, right, list(reward_G) or None))


def test_two_groups_by_hand() -> None:
    """Two tokens, each with probability 1/2, so a ratio's gradient is +-(1/2, -1/2); token 0 is right.

    One of four right: A = sqrt(3) and -1/sqrt(3), v = sqrt(3)/4 (1, -1), u = (1, -1). The mastered one: v = (1, -1)/2.
    """
    policy = Softmax(2)
    mixed = direction(policy, "a", bandit(0, 1, 1, 1, vocabulary=2), DAPO, 1)
    mastered = gradients.likelihood_direction(policy, "b", bandit(0, 0, 0, 0, vocabulary=2))
    first, second = gradients.rows(7, [mixed, mastered])
    edge = math.sqrt(3) / 4
    expected = {
        "p": 0.25,
        "norm": edge * math.sqrt(2),
        "with_update": 2 * edge**2,
        "with_mastered": edge,
        "weight": edge,
    }
    assert (first.pop("step"), first.pop("prompt"), first.pop("residual")) == (7, "a", pytest.approx(0, abs=1e-6))
    assert first == pytest.approx(expected)
    assert (second.pop("step"), second.pop("prompt")) == (7, "b")
    assert second == pytest.approx({"p": 1.0, "norm": math.sqrt(0.5), "with_update": edge, "with_mastered": 0.5})
    assert policy.logits_V.grad is None


def test_a_shaped_reward_leaves_a_residual_by_hand() -> None:
    """Rewards 1, 0, -1 of three tokens: v = sqrt(1.5)/3 (1, 0, -1) and u = (1, -1/2, -1/2), so W = sqrt(1.5)/3."""
    found = direction(Softmax(3), "a", bandit(0, 1, 2, vocabulary=3), DAPO, 1, 1.0, 0.0, -1.0)
    (row,) = gradients.rows(1, [found])
    assert row["weight"] == pytest.approx(math.sqrt(1.5) / 3)
    assert row["residual"] == pytest.approx(0.5)
    assert "with_mastered" not in row


def test_a_group_without_an_advantage_has_no_residual() -> None:
    found = direction(Softmax(2), "a", bandit(0, 1, vocabulary=2), DAPO, 1, 1.0, 1.0)
    (row,) = gradients.rows(1, [found])
    assert row["norm"] == row["weight"] == 0
    assert "residual" not in row


@pytest.fixture(scope="module")
def sampled() -> tuple[Policy, Rollouts]:
    """A Qwen3 with random weights, and eight of its responses to one prompt."""
    policy = Policy(policies.build(Model(init_std=0.05), TOKENIZER, 0), torch.device("cpu"))
    return policy, sample(policy, prompts(1), 8, T, 1.0, EOS, seed=3)


@pytest.mark.parametrize("method", [DAPO, get("mcpo")], ids=lambda method: method.label)
@pytest.mark.parametrize("right", [1, 4, 5, 7])
def test_measured_weights_are_those_of_the_theory(sampled: tuple[Policy, Rollouts], method: Method, right: int) -> None:
    """sqrt(p(1 - p)) for DAPO (Eq. 6), and 1/2 above p = 1/2 for MCPO (Eq. 14)."""
    policy, rollouts = sampled
    assert len(rollouts.length_PG.unique()) > 1
    (row,) = gradients.rows(1, [direction(policy, "", rollouts, method, right)])
    p = right / 8
    expected = 0.5 if p > 0.5 and method == get("mcpo") else math.sqrt(p * (1 - p))
    assert row["weight"] == pytest.approx(expected, abs=1e-4)
    assert row["weight"] == pytest.approx(float(query_weight(method, p)), abs=1e-4)
    assert row["residual"] < 1e-4


def test_measuring_changes_nothing(sampled: tuple[Policy, Rollouts]) -> None:
    policy, rollouts = sampled
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    random = torch.get_rng_state()
    direction(policy, "", rollouts, DAPO, 3)
    gradients.likelihood_direction(policy, "", rollouts)
    assert all(torch.equal(old, new) for old, new in zip(before, policy.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in policy.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def rows_of(update_ND: Any, mastered_ND: Any) -> list[GradientRow]:
    """The recorded rows of the vectors."""
    # Split into two tensors, because a model has many.
    update, mastered = (
        [partial(torch.tensor_split, torch.tensor(v), 2) for v in part] for part in (update_ND, mastered_ND)
    )
    found = [gradients.Direction(f"{i}", 0.5, v, v) for i, v in enumerate(update)]
    found += [gradients.Direction(f"m{i}", 1.0, v) for i, v in enumerate(mastered)]
    return gradients.rows(1, found)


def cosine(a_D: Any, b_D: Any) -> float:
    return float(a_D @ b_D / np.linalg.norm(a_D) / np.linalg.norm(b_D))


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 6), m=st.integers(2, 6))
@settings(max_examples=30)
def test_inner_products_hold_all_that_the_vectors_say(seed: int, n: int, m: int) -> None:
    """Cosine and signal-to-noise ratio from the rows, against the vectors themselves."""
    rng = np.random.default_rng(seed)
    update, mastered = rng.normal(1, 1, (n, 5)), rng.normal(1, 1, (m, 5))
    rows = rows_of(update, mastered)
    U, M = update.mean(0), mastered.mean(0)
    assert directions.cosine(rows) == pytest.approx(cosine(U, M), abs=1e-9)
    trace = float(np.trace(np.cov(update.T)))
    expected = 32 * (float(U @ U) - trace / n) / trace
    assert directions.signal_to_noise(rows, 32) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_what_too_few_prompts_leave_undefined() -> None:
    alone = rows_of(np.ones((1, 3)), np.zeros((0, 3)))
    assert math.isnan(directions.cosine(alone))
    assert math.isnan(directions.signal_to_noise(alone, 8))
    assert measure.gradients(alone, 8) == {
        "gradient/share_0.00_0.25": 0.0,
        "gradient/share_0.25_0.50": 1.0,
        "gradient/share_0.50_0.75": 0.0,
        "gradient/share_0.75_1.00": 0.0,
    }
    assert measure.gradients([], 8) == {}


def test_an_update_against_mastered_prompts_has_a_negative_cosine() -> None:
    rows = rows_of(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[-2.0, 0.0], [0.0, -2.0]]))
    assert measure.gradients(rows, 8)["gradient/cosine_mastered"] == pytest.approx(-1)
