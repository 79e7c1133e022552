"""Truncated importance sampling between the rollout engine and the trainer, by hand; `test_not_finite` has a run."""

import math

import pytest
import torch
from torch import Tensor

from mcpo_cli.backends.corrections import corrected
from mcpo_cli.backends.verl.loss import FACTS, WEIGHTS, facts, importance_weights, loss
from mcpo_cli.methods import MiniBatch, Signals, Term, TokenLoss, get
from tests.errors import refused

pytestmark = pytest.mark.verl
METHOD = get("mcpo")
CAP = 1.5
# Three prompts of one rollout each: one with two tokens, two with one; the last one is mastered.
TRAINER = [[0.6, 0.2], [0.5], [0.9]]
ENGINE = [[0.3, 0.25], [0.5], [0.3]]
WEIGHT = [[1.5, 0.8], [1.0], [1.5]]
"""The ratios 2, 0.8, 1 and 3, at most 1.5."""
DRIFT = 0.1
"""Drift of the mastered rollout's token since it was sampled."""


def ragged(rows: list[list[float]]) -> Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def weights() -> tuple[Tensor, dict[str, float]]:
    trainer_BT, engine_BT = (torch.tensor([[*row, 1.0][:2] for row in rows]).log() for rows in (TRAINER, ENGINE))
    return importance_weights(trainer_BT, engine_BT, torch.tensor([[1, 1], [1, 0], [1, 0]]), CAP)


def test_weights_are_ratios_up_to_the_cap() -> None:
    weight_BT, measured = weights()
    assert torch.allclose(weight_BT, torch.tensor([[1.5, 0.8], [1.0, 0.0], [1.5, 0.0]]))
    assert measured["rollout_corr/rollout_is_mean"] == pytest.approx(4.8 / 4)
    assert measured["rollout_corr/rollout_is_ratio_fraction_high"] == pytest.approx(2 / 4)


@pytest.mark.parametrize("corrects", [False, True])
def test_the_policy_loss_of_each_token_is_weighted_and_the_hinge_is_not(corrects: bool) -> None:
    from tensordict import TensorDict

    mastered_PG = torch.tensor([[False], [False], [True]])
    signals = Signals(
        torch.tensor([[1.0], [-1.0], [0.0]]).double(), mastered_PG | True, None, {"mastered": mastered_PG}
    )
    total = MiniBatch.of(torch.tensor([[2], [1], [1]]), signals, max_response=2)
    old = ragged([[math.log(p) for p in row] for row in TRAINER])
    fields = {
        # One token of a prompt before each response.
        "prompts": ragged([[1.0]] * 3),
        "responses": ragged(TRAINER),
        "response_mask": ragged([[1.0] * len(row) for row in TRAINER]),
        "old_log_probs": old,
        "advantages": ragged([[1.0, 1.0], [-1.0], [0.0]]),
        FACTS: torch.tensor([facts(METHOD, signals, (place, 0), total) for place in range(3)]).double(),
    }
    fields |= {WEIGHTS: ragged(WEIGHT)} if corrects else {}
    data = TensorDict({**fields, "dp_size": torch.ones(3)}, batch_size=3)
    # As in the engine: one token early, with a meaningless one for the last token.
    rows = [[*row.tolist(), 0.0] for row in old.unbind()]
    rows[2][0] += DRIFT
    value, _ = loss(METHOD, {"log_probs": ragged(rows)}, data)
    first, second = ((1.5 + 0.8) / 2, 1.0) if corrects else (1.0, 1.0)
    hinge = (math.expm1(DRIFT) - DRIFT) - (math.expm1(METHOD.delta) - METHOD.delta)
    assert float(value[0]) == pytest.approx((-first + second) / 3 + hinge, abs=1e-6)


def test_a_loss_without_the_weighted_term_is_refused() -> None:
    with refused("run_failed"):
        corrected(TokenLoss((Term("mine", torch.ones(1, 1), torch.ones(1)),)), torch.ones(1, 1), fix="")
